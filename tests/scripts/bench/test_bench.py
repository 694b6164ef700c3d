from __future__ import annotations

import importlib
import inspect

import pytest

from bls.paths import ROOT
from scripts.bench import __main__ as bench


@pytest.mark.parametrize("name", bench.BENCHES)
def test_each_bench_is_there_told_and_takes_what_follows_its_name(name):
    assert list(inspect.signature(importlib.import_module(bench.BENCHES[name]).main).parameters) == ["arguments"]
    assert f"python -m scripts.bench {name}  " in (bench.__doc__ or "")
    assert f"`bench {name}`" in (ROOT / "scripts" / "README.md").read_text()


def test_an_unknown_bench_is_answered_with_those_that_exist(capsys):
    assert bench.main(["everything"]) == 2
    assert capsys.readouterr().err.strip() == (bench.__doc__ or "").strip()


def test_help_is_no_mistake(capsys):
    assert bench.main(["--help"]) == 0
    assert "scripts.bench router" in capsys.readouterr().err
