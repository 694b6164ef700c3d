"""What docs/policy.md shows is so: its rules pass the check and decide as it says, its tables name what there is."""

import re

import pytest

from bls.contract import LARGE, SMALL
from bls.paths import ROOT
from bls.routing.check import check
from bls.routing.decision import Decision, Prompt, State, TierState
from bls.routing.policy_file import SHIPPED
from bls.routing.settings import BadPolicy

PAGE = (ROOT / "docs" / "policy.md").read_text()
SOURCE = SHIPPED.read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CLIENT_RULE = "    if CLIENTS_MAY_CHOOSE"


def prompt(**rest):
    return Prompt({SMALL: 10, LARGE: 10}, {SMALL: 8192, LARGE: 8192}, 16, **rest)


def with_rule(rule, before=CLIENT_RULE, numbers="", examples=""):
    source = SOURCE.replace(before, rule + before, 1).replace("CANARY =", numbers + "CANARY =", 1)
    return check(SHIPPED, source.replace("EXAMPLES = (\n", f"EXAMPLES = (\n{examples}", 1).encode())


def block(text):
    (found,) = [each for each in BLOCKS if text in each]
    return found


def test_the_rule_for_a_language_passes_with_its_example():
    policy = with_rule(
        block('return Decision(LARGE, "german")'), examples=f"    {block('example(Decision').strip()},\n"
    )
    assert policy.choose(prompt(language="de"), State()) == Decision(LARGE, "german")
    assert policy.choose(prompt(language="en"), State()) == Decision(SMALL, "default")


def test_the_rule_for_a_tenant_in_a_hurry_passes_below_the_contexts_and_only_there():
    rule, numbers = block("acme_in_a_hurry"), block("ACME_SECONDS = ")
    policy = with_rule(rule, numbers=numbers)
    acme = prompt(tenant="acme")
    assert policy.choose(acme, State()) == Decision(LARGE, "acme")
    for state in (TierState(first_token_seconds=4.5), TierState(ready=False), TierState(cooling_down=True)):
        assert policy.choose(acme, State({LARGE: state})) == Decision(SMALL, "acme_in_a_hurry")
    with pytest.raises(BadPolicy, match="whose context"):
        with_rule(rule, before="    if not prompt.fits(SMALL)", numbers=numbers)


def test_the_table_of_rules_has_each_reason_in_the_order_of_the_file():
    in_file = re.findall(r'Decision\(\S+, "(\w+)"\)$', SOURCE.partition("EXAMPLES")[0], re.MULTILINE)
    in_table = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert [reason for reason in in_table if reason in in_file] == in_file


def test_each_number_that_the_page_names_is_in_the_file():
    named = set(re.findall(r"`([A-Z]+_[A-Z_]+)(?: = [^`]*)?`", PAGE))
    assert len(named) > 15
    assert [name for name in sorted(named) if not re.search(rf"^{name}\b", SOURCE, re.MULTILINE)] == []
