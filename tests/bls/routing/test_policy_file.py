import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bls.contract import LARGE, SMALL
from bls.routing.check import check, check_apart
from bls.routing.decision import ALL_WELL, Decision, Prompt, State, TierState
from bls.routing.decision_json import prompt_from_json, prompt_to_json, state_from_json, state_to_json
from bls.routing.policy_file import SHIPPED, load_policy, version_of
from bls.routing.settings import BadExample, BadPolicy
from bls.routing.trials import trials

SOURCE = SHIPPED.read_text()


def edited(old, new, source=SOURCE):
    assert old in source
    return source.replace(old, new, 1).encode()


def line_of(source, text):
    return next(number for number, line in enumerate(source.decode().split("\n"), 1) if text in line)


def prompt(tokens=10, max_tokens=16, **rest):
    return Prompt({SMALL: tokens, LARGE: tokens}, {SMALL: 8192, LARGE: 8192}, max_tokens, **rest)


def with_example(arguments, source=SOURCE):
    return edited("EXAMPLES = (\n", f"EXAMPLES = (\n    example({arguments}),\n", source)


FIRST_RULE = "    if not prompt.fits(SMALL):\n"
NEXT_RULE = "    if CLIENTS_MAY_CHOOSE and prompt.wanted:\n"


# What is refused, and where it is said to be


@pytest.mark.parametrize(
    ("source", "at", "problem"),
    [
        (edited("def choose(", "def choose(("), "def choose((", "SyntaxError"),
        (edited("RETRIES = 1", "RETRYS = 1"), None, "RETRIES: it is missing"),
        (edited("RETRIES = 1", "RETRIES = -1"), "RETRIES = -1", "it is -1; it must be a whole number from 0 to 10"),
        (edited("RETRIES = 1", "RETRIES = 1.5"), "RETRIES = 1.5", "a whole number"),
        (edited("DEFAULT = SMALL", 'DEFAULT = "smal"'), "DEFAULT =", "it must be a model of TIERS"),
        (edited("{SMALL: (LARGE,), ", "{SMALL: (LARGE), "), "FALLBACK =", "a tuple of one model needs its comma"),
        (edited("SMALL: 30.0, ", ""), "FIRST_TOKEN_SECONDS =", "one number for each of"),
        (edited('Tier("large", model=LARGE', 'Tier("large", model=SMALL'), "TIERS =", "each tier needs a model of its"),
        (edited("cost_in=0.05", "cost_in=-1"), "TIERS =", "cost_in and cost_out must be numbers"),
        (edited("TIERS = (", "TIERS = 1 / 0, ("), "TIERS = 1", "ZeroDivisionError"),
        (edited("prompt: Prompt, state: State = ALL_WELL", "prompt"), "def choose", "function of (prompt, state)"),
        (with_example('Decision(SMALL, "default"), tokens=513'), "tokens=513", "choose says tensorrt_llm_large"),
        (edited(FIRST_RULE, f"    1 / prompt.tokens[SMALL]\n{FIRST_RULE}"), "1 / prompt", "raises ZeroDivisionError"),
        (edited('    return Decision(SMALL, "default")\n', ""), "def choose", "choose gives None"),
        (edited('SMALL, "default")\n', 'SMALL, "by default")\n'), '"by default"', "must be one word"),
        (edited('(SMALL, "default")\n', '("gpt", "default")\n'), '("gpt"', "choose gives the model 'gpt'"),
        (b"\xff", None, "can't decode"),
        (b"x = 1\0", None, "null bytes"),
        (b"(" * 1000, "(", "SyntaxError"),
    ],
)
def test_a_mistake_is_refused_with_its_line(source, at, problem):
    with pytest.raises(BadPolicy) as caught:
        check(SHIPPED, source)
    assert problem in caught.value.problem
    if at is not None:
        assert caught.value.line == line_of(source, at)
        assert str(caught.value).startswith(f"{SHIPPED}:{caught.value.line}: ")


@pytest.mark.parametrize(
    ("arguments", "proposed"),
    [
        ('Decision(SMALL, "default"), tokens=600', 'tokens=512, or Decision(LARGE, "long_prompt")'),
        ('Decision(LARGE, "long_prompt"), tokens=300', 'tokens=513, or Decision(SMALL, "default")'),
        ('Decision(SMALL, "default"), max_tokens=999', 'max_tokens=256, or Decision(LARGE, "long_answer")'),
        ('Decision(LARGE, "hard")', 'Decision(SMALL, "default")'),
        ('Decision(SMALL, "default"), verdict="refuse"', 'Decision.refuse("unsafe_prompt")'),
    ],
)
def test_an_example_that_does_not_hold_is_refused_with_the_edit_that_makes_it_hold(arguments, proposed):
    with pytest.raises(BadExample) as caught:
        check(SHIPPED, with_example(arguments))
    assert caught.value.problem.endswith(f"if you mean that, line {caught.value.line}: {proposed}")
    for edit in proposed.split(", or "):
        expected, _, rest = arguments.partition("), ")
        changed = f"{expected}), {edit}" if "=" in edit else f"{edit}{', ' if rest else ''}{rest}"
        check(SHIPPED, with_example(changed))


def test_an_example_is_among_a_share_only_if_it_says_so():
    canary = edited("CANARY_SHARE = 0.0", "CANARY_SHARE = 1.0").decode()
    check(SHIPPED, with_example('Decision(LARGE, "canary"), among=("canary",)', canary))
    check(SHIPPED, with_example('Decision(SMALL, "default"), key="any"', canary))


def test_a_policy_without_its_context_rules_is_refused():
    rule = '    if not prompt.fits(LARGE):\n        return Decision(SMALL, "over_large_context")\n'
    example = '    example(Decision(SMALL, "over_large_context"), tokens=600, max_tokens=300, contexts={LARGE: 512}),\n'
    with pytest.raises(BadPolicy, match="whose context the prompt and its answer don't fit"):
        check(SHIPPED, edited(rule, "", edited(example, "").decode()))


def test_a_policy_that_throws_dice_is_refused():
    dice = f'    import random\n    if random.random() < 0.5:\n        return Decision(LARGE, "luck")\n{NEXT_RULE}'
    with pytest.raises(BadPolicy, match=r"another answer|EXAMPLES"):
        check(SHIPPED, edited(NEXT_RULE, dice))


@pytest.mark.parametrize(
    ("source", "at"),
    [
        (edited(FIRST_RULE, f"    while prompt.tokens[SMALL] > 900:\n        pass\n{FIRST_RULE}"), "while prompt"),
        ((SOURCE + "while True: pass\n").encode(), "while True"),
    ],
)
def test_a_loop_that_never_ends_is_refused_with_its_line(source, at):
    with pytest.raises(BadPolicy, match="never ends") as caught:
        check_apart(SHIPPED, source)
    assert caught.value.line - line_of(source, at) in (0, 1)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("import os\nos._exit(0)\n", "ended with status 0"),
        ("import os\nos.kill(os.getpid(), 9)\n", "ended with signal 9"),
        ("raise SystemExit\n", "SystemExit"),
        ("x = bytearray(1 << 40)\n", "MemoryError"),
        ("print('{}')\n", ""),
    ],
)
def test_whatever_a_policy_does_to_its_process_is_a_verdict(more, problem):
    if not problem:
        check_apart(SHIPPED, (SOURCE + more).encode())
        return
    with pytest.raises(BadPolicy, match=problem):
        check_apart(SHIPPED, (SOURCE + more).encode())


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_cut_of_the_file_is_taken_or_refused_and_nothing_else(data):
    lines = SOURCE.split("\n")
    first = data.draw(st.integers(0, len(lines) - 1))
    last = data.draw(st.integers(first, min(len(lines), first + 8)))
    source = "\n".join(lines[:first] + lines[last:]).encode()
    try:
        assert check(SHIPPED, source).version == version_of(source)
    except BadPolicy as bad:
        assert bad.problem and 0 <= bad.line <= len(lines)


# Decisions made whole


def test_a_decision_names_its_line_version_alternatives_and_counts():
    policy = load_policy(SHIPPED)
    decision = policy.decide(prompt(tokens=513, counted="chat"), ALL_WELL)
    line = line_of(SOURCE.encode(), '"long_prompt")')
    assert decision.as_json() == {
        "model": LARGE,
        "reason": "long_prompt",
        "line": line,
        "policy": version_of(SOURCE.encode()),
        "rejected": {SMALL: f"long_prompt, line {line}"},
        "tokens": {SMALL: 513, LARGE: 513},
        "counted": "chat",
    }


@pytest.mark.parametrize(
    ("state", "why"),
    [(TierState(ready=False), "not_loaded"), (TierState(cooling_down=True), "cooling_down")],
)
def test_an_alternative_that_was_down_is_said_to_be(state, why):
    assert load_policy(SHIPPED).decide(prompt(), State({LARGE: state})).rejected == {LARGE: why}


def test_a_policy_that_raises_on_a_request_gives_the_default_that_fits(caplog):
    source = edited(FIRST_RULE, f"    1 / (prompt.tokens[SMALL] - 77)\n{FIRST_RULE}")
    policy = load_policy(SHIPPED, source)
    decision = policy.decide(prompt(tokens=77), ALL_WELL)
    line = line_of(source, "- 77")
    assert (decision.model, decision.reason, decision.line) == (SMALL, "policy_error", line)
    assert f"policy.py:{line}: policy_error: ZeroDivisionError" in caplog.text
    small_is_full = Prompt({SMALL: 77, LARGE: 77}, {SMALL: 64, LARGE: 8192}, 16)
    assert policy.decide(small_is_full, ALL_WELL).model == LARGE
    assert policy.decide(prompt(tokens=78), ALL_WELL).reason == "default"


@pytest.mark.parametrize("answer", ["None", "'small'", "Decision('gpt', 'x')", "exit(3)", "choose(prompt, state)"])
def test_an_answer_that_is_no_decision_gives_the_default(answer):
    policy = load_policy(SHIPPED, edited(FIRST_RULE, f"    return {answer}\n{FIRST_RULE}"))
    assert policy.decide(prompt(), ALL_WELL).reason == "policy_error"


def test_a_fallback_names_what_failed_and_tries_each_engine_once():
    policy = load_policy(SHIPPED)
    first = policy.decide(prompt(), ALL_WELL)
    second = policy.fall_back(first, "unavailable", {SMALL}, prompt(), ALL_WELL)
    assert second == Decision(LARGE, "small_unavailable")
    assert second.rejected[SMALL] == "unavailable"
    assert policy.fall_back(second, "unavailable", {SMALL, LARGE}, prompt(), ALL_WELL) is None
    too_long = Prompt({SMALL: 100, LARGE: 100}, {SMALL: 8192, LARGE: 64}, 16)
    assert policy.fall_back(first, "unavailable", {SMALL}, too_long, ALL_WELL) is None


def test_a_policy_may_have_three_tiers_and_falls_back_to_one_that_is_up():
    more = 'TIERS += (Tier("huge", model="huge", cost_in=5, cost_out=9),)\n'
    numbers = 'FIRST_TOKEN_SECONDS["huge"] = 9\nFALLBACK[SMALL] = (LARGE, "huge")\n'
    policy = load_policy(SHIPPED, edited("EXAMPLES = (", f"{more}{numbers}EXAMPLES = ("))
    given = Prompt(dict.fromkeys((SMALL, LARGE, "huge"), 10), dict.fromkeys((SMALL, LARGE, "huge"), 99), 16)
    down = State({LARGE: TierState(cooling_down=True)})
    first = policy.decide(given, down)
    assert policy.fall_back(first, "slow", {SMALL}, given, down) == Decision("huge", "small_slow")
    assert (policy.model_named("huge"), policy.model_named("large"), policy.model_named("x")) == ("huge", LARGE, None)


# JSON


def test_what_is_written_of_a_prompt_and_a_state_reads_back_as_the_same():
    policy = load_policy(SHIPPED)
    for asked, state in trials((SMALL, LARGE), 300, seed=1):
        read = prompt_from_json(prompt_to_json(asked))
        read_state = state_from_json(state_to_json(state), state.now.isoformat())
        assert (read, read_state) == (asked, state)
        assert policy.decide(read, read_state).as_json() == policy.decide(asked, state).as_json()


def test_the_examples_can_be_written_too():
    for each in load_policy(SHIPPED).settings.examples:
        read = prompt_from_json(prompt_to_json(each.prompt))
        assert read.tokens["any"] == each.prompt.tokens["any"]
        assert {m: read.contexts[m] for m in (SMALL, LARGE)} == {m: each.prompt.contexts[m] for m in (SMALL, LARGE)}
