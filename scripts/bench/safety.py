"""Measures the prompt's checks: microseconds for each prompt by its length, and for each check alone.

python -m scripts.bench safety                     the shipped lists and patterns
python -m scripts.bench safety --words 10000       with as many made words more
python -m scripts.bench safety --seconds 3         longer, for quieter figures

Prompts are cut from README.md and README.zh-CN.md, and from the innocent sentences of the tests, which hold near misses
of listed words all over, so that no quick look clears them. The classifier is left out: it is another model's time.
The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from bls.paths import WORDS
from bls.routing.policy_file import SHIPPED, load_policy
from bls.safety.judge import PromptSafety
from bls.words import lists as word_list
from bls.words.compiler import compile_lists
from bls.words.lists import Category, Word
from bls.words.table import NewestTable
from scripts.bench.filter import SENTENCES, made_words, plain_loop_ns
from scripts.bench.filter_memory import private_kb
from scripts.safety import without_classifier

LENGTHS = (100, 400, 1000, 4000, 16_000)
ATTACKS = SENTENCES.with_name("prompt_attacks.txt")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench safety", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--words", type=int, default=0, help="number of generated words to add to the shipped ones (default: 0)"
    )
    parser.add_argument("--seconds", type=float, default=1.5, help="duration of each measurement (default: 1.5)")
    options = parser.parse_args(arguments)
    texts = running_texts()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "compiled.bin"
        compile_lists(lists_with(options.words, " ".join(texts.values())), path)
        before = private_kb()
        safety = PromptSafety(NewestTable(path))
        results = [
            measured(safety, language, length, prompts(text, length), options.seconds)
            for language, text in texts.items()
            for length in LENGTHS
        ]
        attacks = [line.split("\t")[1] for line in read_lines(ATTACKS)]
        results.append(measured(safety, "attacks", 0, attacks, options.seconds))
        memory = private_kb() - before
    print(table(results))
    loop = round(plain_loop_ns(), 1)
    print(f"\n{memory} kB for a process. A turn of an empty loop took {loop} ns at best: what the machine gave.")
    print(json.dumps({"words": options.words, "private_kb": memory, "loop_ns": loop, "results": results}))
    return 0


def read_lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").split("\n") if line and not line.startswith("#")]


def running_texts() -> dict[str, str]:
    """What prompts are cut from."""
    root = WORDS.parent
    lines = read_lines(SENTENCES)
    random.Random(1).shuffle(lines)
    texts = {
        "english": (root / "README.md").read_text(encoding="utf-8"),
        "chinese": (root / "README.zh-CN.md").read_text(encoding="utf-8"),
        "tricky": " ".join(lines),
    }
    return {name: text * (1 + 2 * LENGTHS[-1] // len(text)) for name, text in texts.items()}


def lists_with(words: int, text: str) -> word_list.WordLists:
    lists = word_list.read(WORDS)
    if words:
        lists.deny["made"] = [Word(word, WORDS, 1) for word in made_words(words, text)]
        lists.categories["made"] = Category("made")
    return lists


def prompts(text: str, length: int) -> list[str]:
    """Different prompts of this length, at most 60."""
    step = max(1, (len(text) - length) // 60)
    return [text[at : at + length] for at in range(0, max(1, len(text) - length), step)]


def measured(safety: PromptSafety, name: str, length: int, texts: list[str], seconds: float) -> dict[str, Any]:
    """Each prompt again and again: the whole verdict, and each check by the verdict's own clock."""
    table = without_classifier(load_policy(SHIPPED).settings.safety)
    for text in texts:
        safety.judge(table, text)  # what a process does in its first seconds: every character and word met once
    totals: list[float] = []
    checks: defaultdict[str, list[float]] = defaultdict(list)
    clean = 0
    until = time.perf_counter() + seconds
    while not totals or time.perf_counter() < until:
        for text in texts:
            start = time.perf_counter_ns()
            verdict = safety.judge(table, text)
            totals.append((time.perf_counter_ns() - start) / 1e3)
            clean += verdict.reason == "clean"
            for run in verdict.checks:
                checks[run.name].append(run.microseconds)
    return {
        "prompts": name,
        "characters": length or round(sum(map(len, texts)) / len(texts)),
        "clean_share": round(clean / len(totals), 3),
        **spread(totals),
        "checks_us_p50": {check: spread(times)["us_p50"] for check, times in checks.items()},
    }


def spread(times: list[float]) -> dict[str, float]:
    times = sorted(times)
    return {"us_p50": round(times[len(times) // 2], 1), "us_p99": round(times[len(times) * 99 // 100], 1)}


def table(results: list[dict[str, Any]]) -> str:
    checks = list(dict.fromkeys(name for result in results for name in result["checks_us_p50"]))
    lines = ["prompts  characters  clean     p50     p99  us; each check alone, p50: " + " ".join(checks)]
    for result in results:
        alone = "  ".join(f"{result['checks_us_p50'].get(name, 0):>7}" for name in checks)
        lines.append(
            f"{result['prompts']:<8} {result['characters']:>10} {result['clean_share']:>6}"
            f" {result['us_p50']:>7} {result['us_p99']:>7}  {alone}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
