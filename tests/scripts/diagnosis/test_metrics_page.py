from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.diagnosis.metrics_page import BadPage, Page, increase, parse, quantile

names = st.sampled_from(["a", "a_total", "nv_cpu_utilization", "x:y", "_z9"])
labels = st.dictionaries(st.sampled_from(["le", "model", "_9"]), st.text(max_size=8), max_size=3)
values = st.floats(allow_nan=False)
keys = st.tuples(names, labels.map(lambda found: frozenset(found.items())))
pages = st.dictionaries(keys, values, max_size=8).map(Page)


def written(page):
    """As Prometheus' own clients write it."""
    lines = []
    for (name, pairs), value in page.series.items():
        escaped = [(label, text.translate({92: r"\\", 34: r"\"", 10: r"\n"})) for label, text in pairs]
        inside = ",".join(f'{label}="{text}"' for label, text in escaped)
        lines.append(f"# TYPE {name} gauge\n{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}")
    return "\n".join(lines) + "\n"


@given(pages)
def test_a_page_that_was_written_is_read_as_it_was(page):
    assert parse(written(page)) == page


@given(st.text())
def test_any_text_is_a_page_or_refused_by_line(text):
    try:
        parse(text)
    except BadPage as bad:
        assert str(bad).startswith("line ")


@pytest.mark.parametrize("line", ["<html>", "name", "name{a=1} 2", 'name{a="1"} two', 'name{a="1} 2', "1name 2"])
def test_a_line_that_is_no_metric_is_named(line):
    with pytest.raises(BadPage, match=r"line 3 is no metric: "):
        parse(f"# HELP x\na 1\n{line}\n")


def test_series_are_summed_by_their_labels():
    page = parse('a{x="1",y="p"} 2\na{x="2",y="p"} 3\na{x="2",y="q"} 4\nab 9 1700000000\n')
    assert page.get("a", x="2") == 7
    assert page.by("y", "a") == {"p": 5, "q": 4}
    assert page.by("z", "a") == {"": 9}
    assert (page.get("ab"), page.get("b"), page.get("a", x="3")) == (9, None, None)


def test_a_counter_that_began_anew_has_grown_by_what_it_shows():
    before, after = parse('n{m="a"} 10\nn{m="b"} 10\ngone 4\n'), parse('n{m="a"} 12\nn{m="b"} 3\nn{m="c"} 5\n')
    assert increase(before, after).by("m", "n") == {"a": 2, "b": 3, "c": 5}


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(observed, share):
    bounds = [1, 2, 5, 10, 50, 100, 500, 1000]
    cumulative = {str(bound): sum(value <= bound for value in observed) for bound in bounds}
    estimate = quantile({**cumulative, "+Inf": len(observed)}, share)
    true = sorted(observed)[math.ceil(share * len(observed)) - 1]
    upper = next(bound for bound in bounds if true <= bound)
    lower = max((bound for bound in bounds if bound < true), default=0)
    assert lower <= estimate <= upper


def test_what_lies_beyond_the_last_bound_is_that_bound():
    assert quantile({"1": 0, "10": 0, "+Inf": 5}, 0.5) == 10
    assert quantile({}, 0.5) == 0
