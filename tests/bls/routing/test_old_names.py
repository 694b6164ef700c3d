"""Policies of the last release serve on, and `scripts/policy check` tells what to change in them."""

import ast

from bls import policy_api
from bls.contract import LARGE, SMALL
from bls.paths import ROOT
from bls.routing.check import check, check_apart
from bls.routing.decision import ALL_WELL, Decision, Prompt
from bls.routing.decision_json import prompt_from_json
from bls.routing.old_names import old_names
from bls.routing.policy_file import SHIPPED
from scripts import policy as command

LAST_RELEASE = ROOT / "tests" / "data" / "policy_of_the_last_release.py"


def test_a_policy_of_the_last_release_is_taken_and_decides_as_it_did():
    source = LAST_RELEASE.read_bytes()
    check_apart(LAST_RELEASE, source)
    policy = check(LAST_RELEASE, source)
    chinese = Prompt({SMALL: 5, LARGE: 5}, {SMALL: 99, LARGE: 99}, 16, script="zh", signals={"script_zh": 1.0})
    assert policy.choose(chinese, ALL_WELL) == Decision(LARGE, "chinese")


def test_check_tells_each_old_name_with_its_line_and_what_it_is_called_today(capsys):
    assert command.main(["check", str(LAST_RELEASE)]) == 0
    told = capsys.readouterr().out
    for line, text in old_names(LAST_RELEASE.read_bytes()):
        assert f"{LAST_RELEASE.name}:{line}: {text}" in told
    for name in ("bls.decision", "bls.prompt_settings", "prompt.script", "script=", "is Script", "script_zh"):
        assert name in told


def test_the_shipped_policy_has_no_old_name_and_imports_the_api_alone():
    assert old_names(SHIPPED.read_bytes()) == []
    nodes = ast.walk(ast.parse(SHIPPED.read_text()))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [node.module for node in imports] == ["__future__", "bls.policy_api"]


def test_recorded_decisions_of_the_last_release_can_be_replayed():
    recorded = {"tokens": {"*": 5}, "contexts": {"*": 99}, "max_tokens": 16, "language": "zh"}
    found = prompt_from_json({**recorded, "signals": {"language_zh": 1.0}})
    assert (found.script, found.language, found.signal("language_zh"), found.signal("script_zh")) == ("zh", "zh", 1, 1)


def test_what_policies_may_import_is_what_it_was():
    """A name that is taken away or renamed breaks operators' files: keep the old one readable for a release."""
    names = """
        ALLOW ALL_WELL CLOSED Classifier Decision Hidden LARGE Limits MASK OPEN Patterns PersonalData Prompt REFUSE
        ROUTE Repetition SMALL Safety Script State Tier TierState Words example
    """
    assert sorted(policy_api.__all__) == sorted(names.split())
    assert all(hasattr(policy_api, name) for name in policy_api.__all__)
