"""scripts/policy, as an operator or CI runs it."""

import json
from dataclasses import replace

import pytest

from bls.contract import LARGE, SMALL
from bls.routing.decision_log import Recorded, append
from bls.routing.policy_file import SHIPPED, load_policy, version_of
from bls.routing.service import POLICY_IN_FORCE, POLICY_REFUSED, in_force_value
from bls.routing.trials import trials
from scripts import policy as command
from scripts.server.http_pages import METRICS_TYPE, Page, listening

SOURCE = SHIPPED.read_text()
HIGHER = SOURCE.replace("SMALL_MAX_PROMPT_TOKENS = 512", "SMALL_MAX_PROMPT_TOKENS = 1024")
REFUSING = SOURCE.replace(
    "    if not prompt.fits(SMALL):",
    '    if prompt.tenant == "acme":\n        return Decision.refuse("tenant_unknown")\n    if not prompt.fits(SMALL):',
)


@pytest.fixture
def write(tmp_path):
    def write(source, name="new.py"):
        (tmp_path / name).write_text(source)
        return str(tmp_path / name)

    return write


def run(capsys, *arguments):
    status = command.main(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_check_says_that_the_shipped_policy_is_good(capsys):
    status, out, _ = run(capsys, "check")
    assert (status, "good, version" in out, "examples hold" in out) == (0, True, True)


def test_check_refuses_with_file_and_line(capsys, write):
    path = write(SOURCE.replace("RETRIES = 1", "RETRIES = 99"))
    status, out, err = run(capsys, "check", path)
    assert (status, out) == (1, "")
    assert err.startswith(f"{path}:") and "RETRIES: it is 99" in err
    assert run(capsys, "check", "missing.py")[0] == 1


def test_explain_shows_rule_tokens_and_alternatives(capsys):
    status, out, _ = run(capsys, "explain", "--raw", "--max-tokens", "300", "hello")
    assert status == 0
    assert out.startswith(f"{LARGE}  long_answer\n")
    assert 'return Decision(LARGE, "long_answer")' in out
    assert f"not       {SMALL}: long_answer, line" in out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--signal", "code=0.9"], "hard"),
        (["--signal", "code=0.9", "--state", "large.in_flight=99"], "large_saturated"),
        (["--set", "verdict=refuse", "verdict_reason=jailbreak"], "jailbreak"),
        (["--set", "tenant=acme", "wanted=large"], "default"),
    ],
)
def test_explain_takes_what_a_request_may_bring(capsys, options, reason):
    status, out, _ = run(capsys, "explain", "--json", "hello", *options)
    assert (status, json.loads(out)["reason"]) == (0, reason)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "tennant=acme"], "known fields: script, verdict"),
        (["--set", "tenant"], "has no ="),
        (["--state", "huge.in_flight=1"], "give TIER.FIELD"),
        (["--max-tokens", "100000000"], "fit no context"),
    ],
)
def test_explain_says_what_it_cannot_try(capsys, options, message):
    status, _, err = run(capsys, "explain", "hello", *options)
    assert (status, message in err) == (2, True)


def test_diff_shows_who_moves_and_what_it_costs(capsys, write):
    status, out, _ = run(capsys, "diff", str(SHIPPED), write(HIGHER))
    assert status == 1
    assert f"{LARGE} long_prompt -> {SMALL} default" in out
    assert "cost: " in out and "0 newly refused" in out
    assert run(capsys, "diff", str(SHIPPED), write(SOURCE))[0] == 0


def test_diff_shows_numbers_that_no_prompt_shows(capsys, write):
    status, out, _ = run(capsys, "diff", str(SHIPPED), write(SOURCE.replace("RETRIES = 1", "RETRIES = 2")))
    assert (status, "RETRIES: 1 -> 2" in out) == (1, True)


@pytest.fixture
def decisions(tmp_path):
    shipped = load_policy(SHIPPED)
    for number, (prompt, state) in enumerate(trials((SMALL, LARGE), 200, seed=5)):
        asked = replace(prompt, tenant="acme" if number % 10 == 0 else "")
        decision = shipped.decide(asked, state)
        append(tmp_path / "decisions.jsonl", Recorded(asked, state, decision, {"output_tokens": 10}), 1 << 30)
    return str(tmp_path / "decisions.jsonl")


def test_replay_makes_the_same_decisions_again(capsys, decisions):
    status, out, _ = run(capsys, "replay", decisions, "--json")
    assert (status, json.loads(out)["decisions"], json.loads(out)["moved"]) == (0, 200, 0)


def test_replay_through_another_policy_counts_moves_tokens_and_cost(capsys, decisions, write):
    status, out, _ = run(capsys, "replay", decisions, "--policy", write(HIGHER), "--json")
    found = json.loads(out)
    assert status == 1 and found["moved"] > 0
    cheaper = [move for move in found["moves"] if move["to"] == f"{SMALL} default"]
    assert found["after"][SMALL]["requests"] - found["before"][SMALL]["requests"] == sum(m["count"] for m in cheaper)
    assert found["cost"][1] < found["cost"][0]
    assert found["after"][LARGE]["output_tokens"] == 10 * found["after"][LARGE]["requests"]


def test_replay_names_those_newly_refused(capsys, decisions, write):
    status, out, _ = run(capsys, "replay", decisions, "--policy", write(REFUSING))
    assert status == 1
    assert "none tenant_unknown" in out
    _, text, _ = run(capsys, "replay", decisions, "--policy", write(REFUSING), "--json")
    assert 10 < json.loads(text)["newly_refused"] <= 20


def test_replay_names_a_line_that_is_no_decision(capsys, decisions):
    with open(decisions, "a") as file:
        file.write("nonsense\n")
    status, _, err = run(capsys, "replay", decisions)
    assert (status, "decisions.jsonl:201: not a recorded decision" in err) == (2, True)


OUTDATED = HIGHER.replace("EXAMPLES = (", 'EXAMPLES = (\n    example(Decision(LARGE, "long_prompt"), tokens=600),')


def test_diff_and_replay_go_on_where_only_an_example_does_not_hold(capsys, decisions, write):
    new = write(OUTDATED)
    assert run(capsys, "check", new)[0] == 1
    for status, out, err in (
        run(capsys, "diff", str(SHIPPED), new),
        run(capsys, "replay", decisions, "--policy", new),
    ):
        assert status == 1 and f"{LARGE} long_prompt -> {SMALL} default" in out
        assert err.startswith("warning: the server would refuse it: ") and "tokens=1025" in err


def test_status_compares_what_a_server_decides_by_with_the_file(capsys, write):
    def page(path):
        return Page(200, METRICS_TYPE, f"{POLICY_IN_FORCE} {in_force_value(version)}\n{POLICY_REFUSED} {refused}\n")

    version, refused = version_of(SOURCE.encode()), 0
    with listening("127.0.0.1", 0, page) as port:
        there = f"--metrics-port={port}"
        status, out, _ = run(capsys, "status", there)
        assert (status, f"in force, version {version}" in out) == (0, True)
        refused = 1
        status, out, _ = run(capsys, "status", write(OUTDATED), there)
        assert status == 1 and f"in force  version {version}" in out and "tokens=1025" in out
        status, out, _ = run(capsys, "status", write(HIGHER), there, "--json")
        assert (status, json.loads(out)["problem"], json.loads(out)["refused"]) == (1, "", True)
    status, _, err = run(capsys, "status", there)
    assert (status, "--metrics-port" in err) == (2, True)
