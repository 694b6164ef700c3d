"""The pages that people read, and what they name: links, headings, paths in backticks."""

from __future__ import annotations

import re
from pathlib import Path

from bls.paths import ROOT

PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [
        ROOT / "README.md",
        ROOT / "README.zh-CN.md",
        *sorted((ROOT / "docs").glob("*.md")),
        ROOT / "words" / "README.md",
        ROOT / "scripts" / "README.md",
    ]
}
FOLDERS = ("bls", "scripts", "docs", "engines", "tests", "words", "model_repository", "monitoring")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_PATH = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./*{{}},-]*)")


def prose(page: str) -> str:
    """The page without its blocks of code."""
    return _FENCE.sub("", PAGES[page])


def links(page: str) -> list[str]:
    """Where its links and pictures lead, those to other sites left out."""
    return [link for link in _LINK.findall(prose(page)) if not link.startswith("http")]


def paths(page: str) -> list[str]:
    """What its backticks name of this repository; a `*` stands for any name."""
    return _PATH.findall(prose(page))


def blocks(page: str) -> list[str]:
    """Its blocks of code, in order."""
    return [found[0] for found in _FENCE.finditer(PAGES[page])]


def anchors(path: Path) -> set[str]:
    """The places in a page, as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
