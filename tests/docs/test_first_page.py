"""README.zh-CN.md says the same as README.md: the same sections, commands, links, figures and rows."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import PAGES, blocks, links, prose

ENGLISH, CHINESE = "README.md", "README.zh-CN.md"


def commands(page):
    """Each line of its blocks, without comments and what a tree says of a folder."""
    lines = [line for block in blocks(page) for line in block.splitlines()]
    return [re.split(r"\s+#|(?<=\S)\s{2,}", line.strip())[0] for line in lines]


def code(page):
    return sorted(re.findall(r"`([^`]+)`", prose(page)))


def figures(page):
    (section,) = re.findall(r"^## (?:Figures|数据)$(.*?)^## ", prose(page), re.MULTILINE | re.DOTALL)
    return sorted(re.findall(r"\d+(?:[.,]\d+)*", section))


@pytest.mark.parametrize("found", [commands, code, figures])
def test_both_languages_say_the_same(found):
    assert found(CHINESE) == found(ENGLISH)


def test_both_languages_have_the_same_links_apart_from_those_to_each_other():
    def elsewhere(page):
        return sorted(link for link in links(page) if link not in (ENGLISH, CHINESE) and not link.startswith("#"))

    assert elsewhere(CHINESE) == elsewhere(ENGLISH)


def test_both_languages_have_the_same_sections_with_as_many_points_and_rows():
    def shape(page):
        return [
            (section.count("\n* "), section.count("\n| "), section.count("\n```"))
            for section in PAGES[page].split("\n## ")
        ]

    assert shape(CHINESE) == shape(ENGLISH)


def test_the_first_screen_has_the_picture_and_the_two_commands():
    for page in (ENGLISH, CHINESE):
        screen = "\n".join(PAGES[page].splitlines()[:40])
        assert "llm_router (BLS" in screen and "scripts/serve cpu" in screen and "scripts/ask" in screen
