"""The router with many sensitive words against the same router with its filter off, beside each other on one server."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bls.contract import ENGINE_CONTROL, LARGE, POSTPROCESSING, PREPROCESSING, ROUTER, SMALL
from bls.paths import ROOT
from bls.words.compiler import compile_lists
from bls.words.lists import USUAL_PII_KINDS, Category, Word, WordLists
from scripts.bench.filter import made_words, running_text
from scripts.bench.local_server import running_server
from scripts.bench.rounds import Round, alternate, prompts, ratios, router_request, served, summary, table
from scripts.host.progress import Progress

UNFILTERED = "llm_router_unfiltered"


def repository(folder: Path, words: int) -> Path:
    """The models that are served, a second router without the filter, and lists of `words` words with all PII kinds."""
    models = folder / "model_repository"
    for model in (ENGINE_CONTROL, LARGE, POSTPROCESSING, PREPROCESSING, ROUTER, SMALL):
        shutil.copytree(ROOT / "model_repository" / model, models / model)
    shutil.copytree(models / ROUTER, models / UNFILTERED)
    config = models / UNFILTERED / "config.pbtxt"
    text, found = re.subn(
        r'(key: "sensitive_words".*\n\s*value: { string_value: ")true', r"\g<1>false", config.read_text()
    )
    assert found
    config.write_text(text)
    shutil.copytree(ROOT / "engines" / "built", folder / "engines" / "built", copy_function=os.link)
    made = [Word(word, folder, 1) for word in made_words(words, running_text())]
    lists = WordLists({"made": made}, [], {"made": Category("made")})
    lists.pii = {kind: Category(kind) for kind in USUAL_PII_KINDS}
    compile_lists(lists, folder / "words" / "compiled.bin")
    return models


def measured(options: argparse.Namespace, counts: list[int]) -> dict[str, Any]:
    """tokens/s, times and CPU of both routers for each number of streams, and their ratio round by round."""
    result: dict[str, Any] = {"rounds": options.rounds, "tokens": options.tokens, "words": options.words}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running_server(folder, repository(folder, options.words)) as server:
            for streams in counts:
                kinds: dict[str, Callable[[], Round]] = {
                    kind: partial(
                        served, server, [router_request(text, options.tokens, model) for text in prompts(streams)]
                    )
                    for kind, model in (("unfiltered", UNFILTERED), ("filtered", ROUTER))
                }
                results = alternate(kinds, options.rounds, Progress(), f"{streams} streams")
                found: dict[str, Any] = {kind: summary(rounds) for kind, rounds in results.items()}
                found["filtered_over_unfiltered"] = ratios(results["filtered"], results["unfiltered"])
                result[f"streams_{streams}"] = found
                print(table(f"{streams} streams, {options.words} words", found), flush=True)
    return result
