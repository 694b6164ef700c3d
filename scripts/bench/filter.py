"""Measures the word filter: what a push of four characters costs, whole texts, building, reloading, memory.

python -m scripts.bench filter                     at 1,000, 10,000 and 100,000 words
python -m scripts.bench filter --words 100000      at one size
python -m scripts.bench filter --seconds 3         longer, for quieter figures

The words are made from the characters of the very text that is filtered, so that most characters begin some word. The
same run measures ahocorasick_rs (whole texts only; it keeps no state between pushes) and the loop that everybody writes
first: look for each word in all that came so far. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bls.words.compiler import compile_lists
from bls.words.lists import USUAL_PII_KINDS, Category, Word, WordLists
from bls.words.normalise import Folding, normaliser
from bls.words.prefilter import TextScanner
from bls.words.stream_filter import WordFilter, filter_text
from bls.words.table import NewestTable, WordTable
from scripts.bench.filter_memory import PUSH_CHARACTERS, memory

SENTENCES = Path(__file__).with_name("data") / "clean_sentences.txt"
TEXT_CHARACTERS = 120


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench filter", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--words", type=int, nargs="+", default=[1000, 10_000, 60_000, 100_000])
    parser.add_argument("--seconds", type=float, default=1.5, help="duration of each measurement (default: 1.5)")
    options = parser.parse_args(arguments)
    text = running_text()
    results = [measured(size, text, options.seconds) for size in options.words]
    print(table(results))
    loop = round(plain_loop_ns(), 1)
    print(f"\nA turn of an empty loop took {loop} ns at best: what the machine gave in this run.")
    sizes = {"push_characters": PUSH_CHARACTERS, "text_characters": TEXT_CHARACTERS, "loop_ns": loop}
    print(json.dumps({**sizes, "results": results}))
    return 0


def plain_loop_ns() -> float:
    def turns() -> None:
        for number in range(100_000):
            number * 3

    return min(once(turns) for _ in range(20)) / 100_000 * 1e9


def running_text() -> str:
    """Chinese and English sentences in turn, without a listed word."""
    lines = [line for line in SENTENCES.read_text(encoding="utf-8").split("\n") if line and not line.startswith("#")]
    random.Random(1).shuffle(lines)
    return " ".join(lines * 8)


def made_words(count: int, text: str) -> list[str]:
    """Half Chinese, of two to five characters, half English, of four to ten letters; none is found in the text."""
    source = random.Random(2)
    chinese = [character for character in text if "\u4e00" <= character <= "\u9fff"]
    latin = [character for character in text.lower() if character.isascii() and character.isalpha()]
    bare = normaliser(Folding()).word(text).replace(" ", "")
    words: set[str] = set()
    while len(words) < count:
        letters, sizes = ((chinese, (2, 2, 3, 3, 4, 5)), (latin, (4, 5, 6, 7, 8, 10)))[len(words) % 2]
        word = "".join(source.choices(letters, k=source.choice(sizes)))
        if normaliser(Folding()).word(word) not in bare:
            words.add(word)
    return sorted(words)


def measured(size: int, text: str, seconds: float) -> dict[str, Any]:
    words = made_words(size, text)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "compiled.bin"
        lists = WordLists({"made": [Word(word, path, 1) for word in words]}, [], {"made": Category("made")})
        build_seconds = once(lambda: compile_lists(lists, path))
        reload_seconds = min(once(lambda: WordTable(path)) for _ in range(3))
        table = NewestTable(path).table()
        lists.pii = {kind: Category(kind) for kind in USUAL_PII_KINDS}
        with_pii = Path(folder) / "with_pii.bin"
        compile_lists(lists, with_pii)
        result: dict[str, Any] = {
            "words": size,
            "build_s": round(build_seconds, 2),
            "reload_ms": round(reload_seconds * 1e3, 2),
            "file_mb": round(path.stat().st_size / 1e6, 1),
            **pushes(table, text, seconds),
            **{f"pii_{name}": value for name, value in pushes(WordTable(with_pii), text, seconds).items()},
            **whole_texts(table, text, seconds),
            **peers(words, text, seconds),
            **memory(path, text),
        }
    return result


def once(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def pushes(table: WordTable, text: str, seconds: float) -> dict[str, Any]:
    """Microseconds of each push in streams of 1,000 characters, and the characters held after it."""
    pieces = [text[at : at + PUSH_CHARACTERS] for at in range(0, len(text) - PUSH_CHARACTERS, PUSH_CHARACTERS)]
    for piece in pieces:
        WordFilter(table).push(piece)  # every character met once: what a process does in its first seconds
    times: list[int] = []
    held: list[int] = []
    clock = time.perf_counter_ns
    gc.collect()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for first in range(0, len(pieces), 250):
            stream = WordFilter(table)
            for piece in pieces[first : first + 250]:
                start = clock()
                stream.push(piece)
                times.append(clock() - start)
                held.append(stream.held)
    times.sort()
    return {
        "push_us_mean": round(statistics.fmean(times) / 1e3, 2),
        "push_us_p50": round(times[len(times) // 2] / 1e3, 2),
        "push_us_p99": round(times[len(times) * 99 // 100] / 1e3, 2),
        "held_mean": round(statistics.fmean(held), 2),
        "held_max": max(held),
    }


def whole_texts(table: WordTable, text: str, seconds: float) -> dict[str, Any]:
    """Whole texts of 120 characters: the stream's own way, one by one through the scanner, and many at once."""
    texts = [text[at : at + TEXT_CHARACTERS] for at in range(0, len(text) - TEXT_CHARACTERS, TEXT_CHARACTERS)]
    scanner = TextScanner(table)
    assert scanner.scan_all(texts) == [filter_text(table, each) for each in texts]
    plain = [each for each in texts if not scanner.looks_suspicious(each)]
    return {
        "suspicious_share": round(1 - len(plain) / len(texts), 3),
        "scan_all_plain_texts_s": per_second(scanner.scan_all, [plain], seconds) * len(plain),
        "stream_texts_s": per_second(lambda each: filter_text(table, each), texts, seconds),
        "scan_texts_s": per_second(scanner.scan, texts, seconds),
        "scan_all_texts_s": per_second(scanner.scan_all, [texts], seconds) * len(texts),
        "scan_all_mb_s": round(per_second(scanner.scan_all, [texts], seconds) * len("".join(texts).encode()) / 1e6, 1),
    }


def per_second(work: Callable[[Any], object], items: list[Any], seconds: float) -> int:
    """By the processor's time, so that others at work on the machine count less."""
    done = 0
    start = time.process_time()
    while (elapsed := time.process_time() - start) < seconds:
        for item in items:
            work(item)
        done += len(items)
    return round(done / elapsed)


def peers(words: list[str], text: str, seconds: float) -> dict[str, Any]:
    """The same words and texts by others; neither folds more than the case here."""
    texts = [text[at : at + TEXT_CHARACTERS] for at in range(0, len(text) - TEXT_CHARACTERS, TEXT_CHARACTERS)]
    result: dict[str, Any] = {"naive_push_us": round(naive_push_us(words, text, seconds), 1)}
    try:
        import ahocorasick_rs
    except ImportError:
        return {**result, "ahocorasick_rs_texts_s": None}
    automaton = ahocorasick_rs.AhoCorasick(words)
    folding = {ord(upper): upper.lower() for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
    result["ahocorasick_rs_texts_s"] = per_second(automaton.find_matches_as_indexes, texts, seconds)
    result["ahocorasick_rs_folded_texts_s"] = per_second(
        lambda each: automaton.find_matches_as_indexes(each.translate(folding)), texts, seconds
    )
    return result


def naive_push_us(words: list[str], text: str, seconds: float) -> float:
    seen, pushed = "", 0
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        seen = (seen + text[pushed * PUSH_CHARACTERS : (pushed + 1) * PUSH_CHARACTERS])[-200:].lower()
        any(word in seen for word in words)
        pushed += 1
    return elapsed / pushed * 1e6


def table(results: list[dict[str, Any]]) -> str:
    return "\n".join(rows(results))


def rows(results: list[dict[str, Any]]) -> Iterator[str]:
    for name in results[0]:
        yield f"{name:<32}" + "".join(f"{result[name]!s:>12}" for result in results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
