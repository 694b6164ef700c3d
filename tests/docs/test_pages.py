"""What the pages name exists: each link, each path in backticks, each command of this repository."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from bls import tiers
from bls.contract import LARGE, SMALL
from bls.paths import ROOT
from scripts import doctor
from scripts.bench import __main__ as bench
from tests.docs.pages import PAGES, anchors, links, paths

# Written by a server or a build, so absent from a fresh clone.
MADE_LATER = ("engines/built", "words/compiled.bin")


@pytest.mark.parametrize(("page", "link"), [(page, link) for page in PAGES for link in links(page)])
def test_each_link_leads_somewhere(page, link):
    file, _, place = link.partition("#")
    target = (ROOT / page).parent / file if file else ROOT / page
    assert target.exists()
    assert not place or place in anchors(target)


@pytest.mark.parametrize(("page", "path"), sorted({(page, path) for page in PAGES for path in paths(page)}))
def test_each_path_in_backticks_exists(page, path):
    assert path.startswith(MADE_LATER) or any(ROOT.glob(path.rstrip("/.")))


def runnable(module):
    """The file that `python -m` runs."""
    spec = importlib.util.find_spec(f"{module}.__main__" if (ROOT / module.replace(".", "/")).is_dir() else module)
    return Path(spec.origin)


@pytest.mark.parametrize("page", PAGES)
def test_each_command_of_this_repository_exists(page):
    text = PAGES[page]
    for name in re.findall(r"scripts\.bench (\w+)|`bench (\w+)", text):
        assert (name[0] or name[1]) in bench.BENCHES
    for name in re.findall(r"-m (scripts[\w.]*\w)", text):
        assert 'if __name__ == "__main__"' in runnable(name).read_text(), name
    for name in re.findall(r"(?:^|`)scripts/(\w+)(?=[ `\n])", text, re.MULTILINE):
        assert (ROOT / "scripts" / name).exists(), name
    for arguments in re.findall(r"^scripts/doctor([^#\n]*)", text, re.MULTILINE):
        doctor.parsed(arguments.split())


def test_the_first_page_names_every_folder_of_code():
    tree = PAGES["README.md"].partition("## What is where")[2]
    for package in ("bls", "engines", "scripts", "model_repository"):
        for folder in (ROOT / package).iterdir():
            if folder.is_dir() and (any(folder.glob("*.py")) or (folder / "config.pbtxt").is_file()):
                assert folder.name in tree or _is_a_further_tier(folder.name), folder


def _is_a_further_tier(folder):
    return tiers.is_engine(folder) and folder not in (SMALL, LARGE)
