"""Shows what the prompt's checks say of a text, by the word lists and patterns of words/ as they stand.

scripts/safety "some text"                     verdict, reason, and how long each check took
scripts/safety --chat '[{"role": ...}]'        chat messages instead
scripts/safety --plain "some text"             a prompt without a chat template
scripts/safety --json "some text"              the same for programs
scripts/safety < prompts.txt                   standard input, as one text
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bls.errors import BadRequest
from bls.paths import WORDS
from bls.routing.policy_file import SHIPPED, load_policy
from bls.safety.judge import PromptSafety, Verdict
from bls.safety.settings import Safety
from bls.words import lists
from bls.words.compiler import compile_lists
from bls.words.lists import ListError
from bls.words.table import NewestTable

PERSONAL_DATA_OPTION = 'PersonalData(on_hit={"phone": "allow"}) in SAFETY of bls/policy.py leaves a kind as it is'


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    try:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "compiled.bin"
            compile_lists(lists.read(options.folder), target)
            safety = PromptSafety(NewestTable(target))
            text, messages = ("", options.text) if options.chat else (options.text, "")
            table = without_classifier(load_policy(SHIPPED).settings.safety)
            # A process's first prompt takes longer than all others.
            safety.judge(table, text, messages, not options.plain, options.tenant)
            verdict = safety.judge(table, text, messages, not options.plain, options.tenant)
    except (ListError, BadRequest) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(as_dict(verdict), ensure_ascii=False) if options.json else for_people(verdict))
    return 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/safety", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", nargs="?", help="the text (default: standard input)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--chat", action="store_true", help="the text is a JSON list of messages")
    kind.add_argument("--plain", action="store_true", help="the text is not put into the chat template")
    parser.add_argument("--tenant", default="", metavar="NAME", help="the sender, for TRUSTED_TENANTS of the policy")
    parser.add_argument("--folder", type=Path, default=WORDS, help="folder with the lists (default: words/)")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args(arguments)
    if options.text is None:
        options.text = sys.stdin.read()
    return options


def without_classifier(safety: Safety) -> Safety:
    """It is a model of the server, which this command does without."""
    return replace(safety, checks=tuple(check for check in safety.checks if check.name != "classifier"))


def as_dict(verdict: Verdict) -> dict[str, object]:
    """All of a verdict, the checks by name."""
    checks = [run._asdict() for run in verdict.checks]
    return {**vars(verdict), "signals": dict(verdict.signals), "checks": checks}


def for_people(verdict: Verdict) -> str:
    lines = [f"{verdict.action}: {verdict.reason}"]
    lines += [f"  {text}" for text in (verdict.text, verdict.messages, verdict.reply) if text]
    if any(run.name == "personal_data" and run.outcome != "clean" for run in verdict.checks):
        lines.append(f"  ({PERSONAL_DATA_OPTION})")
    lines.append("")
    lines += [f"  {run.name:<15} {run.outcome:<8} {run.microseconds:7.0f} us  {run.detail}" for run in verdict.checks]
    lines += [f"  {name:<15} {score:g}" for name, score in verdict.signals.items()]
    return "\n".join(line.rstrip() for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
