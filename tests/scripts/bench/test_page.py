"""docs/benchmarks.md says what its benchmarks left, and no other figure."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from scripts.bench import page as benchmark_page
from scripts.bench.bars import Bar, Panel, draw, rounded

FOLDER = benchmark_page.PAGE.with_suffix("")


@pytest.mark.parametrize("name", benchmark_page.PARTS)
def test_each_table_and_picture_is_what_the_benchmark_left(name):
    table, picture = benchmark_page.PARTS[name]
    found = json.loads((FOLDER / f"{name}.json").read_text())
    page = benchmark_page.PAGE.read_text()
    assert benchmark_page.written(page, name, table(found)) == page
    assert (FOLDER / f"{name}.svg").read_text() == picture(found)
    assert f"(benchmarks/{name}.svg)" in page and f"bench {name}" in page


def test_a_page_without_a_place_for_a_table_is_refused():
    with pytest.raises(ValueError, match="no <!-- table: batching -->"):
        benchmark_page.written("text <!-- end -->", "batching", "| |")


def test_a_table_replaces_only_what_stands_in_its_place():
    page = "before\n<!-- table: x -->\nold\n<!-- end -->\nafter <!-- end -->"
    assert benchmark_page.written(page, "x", "new") == page.replace("old", "new")


def test_the_longest_bar_of_a_panel_fills_it_and_the_others_keep_its_scale():
    picture = draw([Panel("a & b", [Bar("whole", 40.0, "x"), Bar("half", 20.0, "y"), Bar("none", 0.0, "y")])])
    bars = [each for each in ElementTree.fromstring(picture).iter() if each.tag.endswith("rect")][1:]
    widths = [float(each.get("width")) for each in bars]
    assert widths[1] == pytest.approx(widths[0] / 2, abs=0.1) and widths[2] == 0
    assert bars[1].get("fill") == bars[2].get("fill") != bars[0].get("fill")


@pytest.mark.parametrize(("value", "text"), [(1234.5, "1,234"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23")])
def test_figures_have_three_digits(value, text):
    assert re.fullmatch(re.escape(text), rounded(value))
