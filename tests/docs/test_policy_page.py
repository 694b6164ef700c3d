"""What docs/policy.md shows is so: its rules pass the check and decide as it says, its tables name what there is."""

import re
from types import SimpleNamespace

import pytest

from bls.contract import LARGE, SMALL
from bls.paths import ROOT
from bls.router import Router
from bls.routing.check import check
from bls.routing.decision import ALL_WELL, Decision, State, TierState
from bls.routing.engine_health import EngineHealth
from bls.routing.policy_file import SHIPPED, VARIABLE
from bls.routing.route import Routing
from bls.routing.settings import BadPolicy
from bls.routing.shared_table import SharedTable
from bls.safety import script
from bls.safety.judge import PromptSafety
from bls.words.compiler import compile_folder
from bls.words.stream_filter import filter_text
from bls.words.table import NewestTable
from tests.fakes import FakeEngines, FakeMetrics, FakeModels, patient_watch, request

PAGE = (ROOT / "docs" / "policy.md").read_text()
SOURCE = SHIPPED.read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CLIENT_RULE = "    if CLIENTS_MAY_CHOOSE"


class Health(EngineHealth):
    """Of engines that are in this state."""

    def __init__(self, state):
        super().__init__(SharedTable(None))
        self._state = state

    def state(self, settings):
        return self._state


def decision(policy, text="What time is it?", state=ALL_WELL, words=None, **parameters):
    """What becomes of a prompt's text, judged by the policy's checks, on its way through the router."""
    routing = Routing(SimpleNamespace(current=policy), Health(state))
    router = Router(FakeModels(), FakeEngines(), FakeMetrics(), None, PromptSafety(words), routing=routing)
    return list(router.answer(request(text, parameters=parameters), patient_watch()))[-1].decision


def with_rule(rule, before=CLIENT_RULE, numbers="", examples=""):
    source = SOURCE.replace(before, rule + before, 1).replace("CANARY =", numbers + "CANARY =", 1)
    return check(SHIPPED, source.replace("EXAMPLES = (\n", f"EXAMPLES = (\n{examples}", 1).encode())


def block(text):
    (found,) = [each for each in BLOCKS if text in each]
    return found


def test_the_rule_for_a_script_passes_with_its_example_and_holds_for_a_prompt_that_is_mostly_in_it():
    example = block('Decision(LARGE, "chinese"), script').strip()
    policy = with_rule(block('return Decision(LARGE, "chinese")'), examples=f"    {example},\n")
    for text in (
        "现在几点？",
        "用Python写一个函数，返回两个数的和",
        "Python 的 list 和 tuple 有什么区别？请举例说明",
    ):
        assert decision(policy, text) == Decision(LARGE, "chinese")
    for text in ("What time is it?", "Wie spät ist es in München?", "What does 你好 mean in Chinese, please?"):
        assert decision(policy, text) == Decision(SMALL, "default")


def test_the_page_names_each_script_that_there_is():
    shown = re.search(r"script of most of the letters: (.*)\n", PAGE)[1]
    assert set(re.findall(r"`(\w+)`", shown)) == {name for _, name in script.RANGES if name}


def test_the_rule_for_a_tenant_in_a_hurry_passes_below_the_contexts_and_only_there():
    rule, numbers = block("acme_in_a_hurry"), block("ACME_SECONDS = ")
    policy = with_rule(rule, numbers=numbers)
    assert decision(policy, tenant="acme") == Decision(LARGE, "acme")
    for state in (TierState(first_token_seconds=4.5), TierState(ready=False), TierState(cooling_down=True)):
        assert decision(policy, state=State({LARGE: state}), tenant="acme") == Decision(SMALL, "acme_in_a_hurry")
    with pytest.raises(BadPolicy, match="whose context"):
        with_rule(rule, before="    if not prompt.fits(SMALL)", numbers=numbers)


def test_the_rule_for_the_night_passes_with_its_examples():
    examples = "".join(f"    {line},\n" for line in block("now=").strip().splitlines())
    with_rule(block('"night")\n'), numbers=block("TIME_ZONE = ").replace("TIME_ZONE", "_ZONE"), examples=examples)
    late = examples.replace("23:30", "12:30")
    with pytest.raises(BadPolicy, match="EXAMPLES: expected tensorrt_llm_large, night"):
        with_rule(block('"night")\n'), examples=late)


def test_the_rule_by_keywords_holds_for_prompts_with_a_listed_word_whose_answers_may_say_it(tmp_path):
    (tmp_path / "deny").mkdir()
    words = re.search(r"one a line \((.*)\)", PAGE)[1].replace("`", "").replace(", ", "\n")
    (tmp_path / "deny" / "infrastructure.txt").write_text(words + "\n")
    (tmp_path / "categories.toml").write_text(re.search(r"```toml\n(\[categories.*?)```", PAGE, re.DOTALL)[1])
    compile_folder(tmp_path, tmp_path / "compiled.bin")
    example = block('signals={"word_infrastructure"').strip()
    policy = with_rule(block('prompt.signal("word_infra'), examples=f"    {example},\n")
    table = NewestTable(tmp_path / "compiled.bin")
    for text, reason in {"Who may use Kubernetes here?": "infrastructure", "is rbac hard": "infrastructure"}.items():
        assert decision(policy, text, words=table) == Decision(LARGE, reason)
    assert decision(policy, "What time is it?", words=table) == Decision(SMALL, "default")
    assert filter_text(table.table(), "Use kubectl and RBAC.")[0] == "Use kubectl and RBAC."


def test_the_table_of_rules_has_each_reason_in_the_order_of_the_file():
    in_file = re.findall(r'Decision\(\S+, "(\w+)"\)$', SOURCE.partition("EXAMPLES")[0], re.MULTILINE)
    in_table = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert [reason for reason in in_table if reason in in_file] == in_file


def test_each_number_that_the_page_names_is_in_the_file():
    named = set(re.findall(r"`([A-Z]+_[A-Z_]+)(?: = [^`]*)?`", PAGE)) - {VARIABLE}
    assert len(named) > 15
    assert [name for name in sorted(named) if not re.search(rf"^{name}\b", SOURCE, re.MULTILINE)] == []
