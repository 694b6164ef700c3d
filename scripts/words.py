"""Checks, compiles and tries word lists; see words/README.md.

scripts/words check                      every mistake, with file and line
scripts/words compile                    checks, then replaces the compiled file that servers map
scripts/words watch                      compiles whenever the lists change, until it is told to stop
scripts/words try "some text"            what would go out, and why
scripts/words try --json "some text"     the same for programs
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from pathlib import Path

from bls.paths import WORDS
from bls.words import lists as word_list
from bls.words.compiler import compile_lists
from bls.words.list_warnings import warnings_of
from bls.words.lists import ListError, Word, WordLists
from bls.words.normalise import normaliser
from bls.words.stream_filter import Hit, WordFilter, filter_text
from bls.words.table import WordTable
from scripts import words_watch

MOST_WARNINGS = 50  # and as many problems, to people


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    target = options.output or options.folder / "compiled.bin"
    if options.verb == "watch":
        return words_watch.until_told(options.folder, target)
    try:
        lists = word_list.read(options.folder)
    except ListError as error:
        return refused(error, options.json)
    if options.verb == "try":
        attempt = try_text(lists, options.text)
        print(json.dumps(dataclasses.asdict(attempt), ensure_ascii=False) if options.json else attempt.for_people())
        return 0
    warnings = list(warnings_of(lists))
    if not options.json:
        for word, message in warnings[:MOST_WARNINGS]:
            print(f"{word.path}:{word.line}: warning: {message}", file=sys.stderr)
        if len(warnings) > MOST_WARNINGS:
            print(f"... and {len(warnings) - MOST_WARNINGS} more warnings", file=sys.stderr)
    summary: dict[str, object] = {
        "words": sum(map(len, lists.deny.values())),
        "allowed": len(lists.allow),
        "categories": {name: [category.action, len(lists.deny[name])] for name, category in lists.categories.items()},
        "warnings": [{"file": str(word.path), "line": word.line, "warning": text} for word, text in warnings],
        "pii": {kind: category.action for kind, category in lists.pii.items()},
    }
    if options.verb == "compile":
        summary |= {"version": compile_lists(lists, target), "file": str(target), "bytes": target.stat().st_size}
    print(json.dumps(summary, ensure_ascii=False) if options.json else for_people(summary))
    return 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/words", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=("check", "compile", "watch", "try"))
    parser.add_argument("text", nargs="?", help="text for `try` (default: standard input)")
    parser.add_argument("--folder", type=Path, default=WORDS, help="folder with the lists (default: words/)")
    parser.add_argument("--output", type=Path, help="the compiled file (default: compiled.bin in the folder)")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_intermixed_args(arguments)
    if options.verb != "try" and options.text is not None:
        parser.error(f"{options.verb} takes no text")
    if options.verb == "try" and options.text is None:
        options.text = sys.stdin.read()
    return options


def refused(error: ListError, as_json: bool) -> int:
    if as_json:
        problems = [{"file": str(path), "line": line, "problem": message} for path, line, message in error.problems]
        print(json.dumps({"problems": problems}, ensure_ascii=False))
    else:
        count = len(error.problems)
        print("\n".join(map(str, error.problems[:MOST_WARNINGS])), file=sys.stderr)
        if count > MOST_WARNINGS:
            print(f"... and {count - MOST_WARNINGS} more", file=sys.stderr)
        print(f"{count} problem{'s' * (count > 1)}; the compiled file stays as it was", file=sys.stderr)
    return 1


def for_people(summary: dict[str, object]) -> str:
    categories, pii = summary["categories"], summary["pii"]
    assert isinstance(categories, dict)
    assert isinstance(pii, dict)
    lines = [f"{summary['words']} words, {summary['allowed']} allowed"]
    lines += [f"  {name:<16} {action:<10} {count} words" for name, (action, count) in categories.items()]
    lines += [f"  {kind:<16} {action}" for kind, action in pii.items()]
    if "version" in summary:
        lines.append(f"{summary['file']}: version {summary['version']}, {summary['bytes']} bytes")
    return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Found:
    """A match; `compared_as` is what its characters were taken for."""

    category: str
    start: int
    end: int
    action: str
    text: str
    compared_as: str
    listed: str = ""  # the first line that it is found by: file and number


@dataclasses.dataclass(frozen=True)
class Attempt:
    text: str  # what goes out
    terminated: bool
    hits: list[Found]
    allowed: list[Found]  # matches that an allow word contains

    def for_people(self) -> str:
        lines = [self.text, ""]
        lines += [f"  {found.action:<10} {found.category:<12} {_described(found)}" for found in self.hits]
        lines += [f"  {'allowed':<10} {found.category:<12} {_described(found)}" for found in self.allowed]
        if self.terminated:
            lines.append("  the answer ends here")
        if not self.hits and not self.allowed:
            lines.append("  nothing found")
        return "\n".join(lines)


def _described(found: Found) -> str:
    taken = "" if found.compared_as == found.text else f"  taken for {found.compared_as!r}"
    return f"{found.start}-{found.end}  {found.text!r}{taken}{f'  by {found.listed}' if found.listed else ''}"


def try_text(lists: WordLists, text: str) -> Attempt:
    """Filters `text` by the lists as they stand, compiled or not."""
    stream = WordFilter(_compiled(lists))
    out = stream.push(text) + stream.finish()
    _, hits_without_allow = filter_text(_compiled(dataclasses.replace(lists, allow=[])), text)
    counted = set(stream.hits)
    exempted = [] if stream.terminated else [hit for hit in hits_without_allow if hit not in counted]
    return Attempt(
        out,
        stream.terminated,
        [_found(hit, text, lists) for hit in stream.hits],
        [_found(hit, text, lists) for hit in exempted],
    )


def _found(hit: Hit, text: str, lists: WordLists) -> Found:
    raw = text[hit.start : hit.end]
    category = lists.categories.get(hit.category)
    if category is None:
        return Found(*hit, raw, raw)
    word = _first_line(hit, text, lists, lists.deny[hit.category])
    return Found(*hit, raw, normaliser(category.folding).word(raw), f"{word.path}:{word.line}" if word else "")


def _first_line(hit: Hit, text: str, lists: WordLists, words: list[Word]) -> Word | None:
    """The first word without which the hit would not be there, looked for by halves."""
    while len(words) > 1:
        half = words[: (len(words) + 1) // 2]
        alone = dataclasses.replace(lists, deny={hit.category: half}, allow=[], pii={}, patterns=[])
        alone.categories = {hit.category: lists.categories[hit.category]}
        _, hits = filter_text(_compiled(alone), text)
        words = half if hit in hits else words[len(half) :]
    return words[0] if words else None


def _compiled(lists: WordLists) -> WordTable:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "compiled.bin"
        compile_lists(lists, target)
        return WordTable(target)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
