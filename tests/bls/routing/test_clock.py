"""Rules by the clock: the same answer whenever they are checked, in the zone that the policy names."""

from datetime import datetime, timezone

import pytest

from bls.contract import LARGE, SMALL
from bls.routing import clock
from bls.routing.check import check, check_apart
from bls.routing.decision import ALL_WELL, State, example
from bls.routing.decision_json import state_from_json, state_to_json
from bls.routing.policy_file import SHIPPED, load_policy
from bls.routing.settings import BadPolicy

RULE = '    if state.now.hour >= 22 or state.now.hour < 6:\n        return Decision(LARGE, "night")\n'
AT_NIGHT = 'example(Decision(LARGE, "night"), now="2026-07-01 23:30"),\n'
PLAIN = 'example(Decision(SMALL, "default")),\n'


def policy(tmp_path, rule=RULE, examples=AT_NIGHT, more='TIME_ZONE = "Europe/Zurich"\n', head=""):
    below_the_contexts = "    if CLIENTS_MAY_CHOOSE"
    text = SHIPPED.read_text().replace(below_the_contexts, rule + below_the_contexts, 1)
    text = text.replace("EXAMPLES = (\n", f"EXAMPLES = (\n    {examples}", 1).replace(
        "from bls.policy_api", head + "from bls.policy_api", 1
    )
    path = tmp_path / "policy.py"
    path.write_text(text + more)
    return path


def test_a_rule_by_the_clock_is_checked_at_the_times_that_its_examples_name(tmp_path):
    check_apart(policy(tmp_path), policy(tmp_path).read_bytes())
    with pytest.raises(BadPolicy, match="EXAMPLES: expected tensorrt_llm_large, night; choose says"):
        check(policy(tmp_path, examples='example(Decision(LARGE, "night"), now="12:00"),\n'))


def test_without_a_time_an_example_is_asked_at_noon_of_a_monday():
    assert (ALL_WELL.now.hour, ALL_WELL.now.strftime("%A")) == (12, "Monday")
    assert example(None, now="22:30").state.now == datetime(2026, 1, 5, 22, 30)


@pytest.mark.parametrize(("utc", "model"), [("2026-07-01 20:30", LARGE), ("2026-01-05 20:30", SMALL)])
def test_the_time_is_that_of_the_policys_zone_in_summer_and_winter(tmp_path, utc, model):
    found = load_policy(policy(tmp_path))
    state = State(now=datetime.fromisoformat(utc).replace(tzinfo=timezone.utc))
    assert found.decide(found.settings.examples[-2].prompt, state).reason == (
        "night" if model == LARGE else "long_prompt"
    )


def test_an_unknown_zone_is_refused_by_name(tmp_path):
    with pytest.raises(BadPolicy, match="TIME_ZONE: it is 'Mars/Olympus' is no time zone that is known here"):
        load_policy(policy(tmp_path, more='TIME_ZONE = "Mars/Olympus"\n'))


def test_a_recorded_decision_has_its_time():
    state = State(now=datetime(2026, 7, 1, 23, 30, tzinfo=clock.zone("Europe/Zurich")))
    assert state_from_json(state_to_json(state), state.now.isoformat()).now == state.now
    assert state_from_json({}) == ALL_WELL


def test_who_reads_the_machines_clock_is_told_so(tmp_path):
    rule = '    if datetime.now().year > 1:\n        return Decision(LARGE, "night")\n'
    path = policy(tmp_path, rule, 'example(Decision(SMALL, "default")),\n', head="from datetime import datetime\n")
    with pytest.raises(BadPolicy, match=r"datetime\.now reads the machine's clock.* ask state\.now"):
        check(path)
    assert clock.machine_clocks("import time, datetime\ntime.time()\ndatetime.datetime.now()\nx.now()\n") == [
        (2, f"time.time reads the machine's clock, so {clock.HINT}"),
        (3, f"datetime.now reads the machine's clock, so {clock.HINT}"),
    ]


@pytest.mark.parametrize("name", ["text", "content", "prompt"])
def test_a_rule_by_keywords_is_told_where_those_go(tmp_path, name):
    rule = f'    if "kubernetes" in prompt.{name}:\n        return Decision(LARGE, "keyword")\n'
    with pytest.raises(BadPolicy, match=f"there is no prompt.{name}: put the words into words/deny/<list>.txt"):
        check(policy(tmp_path, rule))


def test_a_field_that_there_never_was_is_refused_by_its_name(tmp_path):
    with pytest.raises(BadPolicy, match="a prompt has no mood"):
        check(policy(tmp_path, "    prompt.mood\n"))
