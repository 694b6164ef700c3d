"""A model repository for tests: everything as it is served, but for two echo engines and fewer router processes."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from bls.contract import (
    ENGINE_CONTROL,
    LARGE,
    POSTPROCESSING,
    PREPROCESSING,
    ROUTER,
    SMALL,
    TEXT_CLASSIFIER,
    TEXT_PIPELINE,
    TEXT_TOKENIZER,
)
from bls.paths import ROOT
from bls.words.compiler import compile_folder

SOURCE = ROOT / "model_repository"
# The end of a policy that turns nobody away, however many wait: for tests that keep all router processes busy.
UNLIMITED = "\nMAX_WAIT_SECONDS = 86400.0\nMAX_IN_FLIGHT = dict.fromkeys((tier.model for tier in TIERS), 1000)\n"

# What `seed` tells the echo engine: milliseconds between two tokens, plus 1000 times one of these.
PLAIN = 0
SILENT = 1  # No token ever, until it is stopped.
FAILS_FIRST = 2
FAILS_LATER = 3  # After two tokens.
FINAL_ALONE = 4  # The end comes in a response of its own, as some engines send it.
ENDS_EMPTY = 5  # The end rides on a response with sequence_length 0.
ENDLESS = 6  # The prompt again and again, up to request_output_len.
STOP_IS_AN_ERROR = 7  # SILENT, and a stop ends it with an error.
CUT = 8  # Tokens cut at random into single bytes, one to four in a response; the milliseconds are the random seed.


def make(
    folder: Path, routers: int = 4, words: Path = ROOT / "words", classifier: bool = False, **replace: str
) -> Path:
    """Makes folder/model_repository, folder/engines/built and folder/words/compiled.bin, of the lists in `words`.

    `classifier`: with the text classifier, which is slow to load. `replace`: values of the router's config by field.
    """
    repository = folder / "model_repository"
    encoder = (TEXT_TOKENIZER, TEXT_CLASSIFIER, TEXT_PIPELINE) if classifier else ()
    for model in (ENGINE_CONTROL, POSTPROCESSING, PREPROCESSING, ROUTER, *encoder):
        shutil.copytree(SOURCE / model, repository / model)
    for model in (SMALL, LARGE):
        _make_engine(repository / model)
    _replace(repository / ROUTER / "config.pbtxt", {"count": str(routers), **replace})
    shutil.copytree(ROOT / "engines" / "built", folder / "engines" / "built", copy_function=os.link)
    compile_folder(words, folder / "words" / "compiled.bin")
    return repository


def copy_model(repository: Path, model: str, name: str, **replace: str) -> None:
    """Puts a copy of a model beside it, under another name and with these fields of its config replaced."""
    shutil.copytree(repository / model, repository / name)
    config = repository / name / "config.pbtxt"
    config.write_text(f'name: "{name}"\n' + re.sub(r"^name: .*\n", "", config.read_text(), flags=re.MULTILINE))
    _replace(config, replace)


def _replace(config: Path, fields: dict[str, str]) -> None:
    text = config.read_text()
    for field, value in fields.items():
        text, found = re.subn(rf"\b{field}: \S+", f"{field}: {value}", text, count=1)
        assert found, field
    config.write_text(text)


def set_parameter(repository: Path, model: str, key: str, value: str) -> None:
    config = repository / model / "config.pbtxt"
    text, found = re.subn(rf'(key: "{key}".*\n\s*value: {{ string_value: ")[^"]*', rf"\g<1>{value}", config.read_text())
    assert found, key
    config.write_text(text)


def _make_engine(folder: Path) -> None:
    (folder / "1").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "server" / "echo_engine.py", folder / "1" / "model.py")
    text = (SOURCE / folder.name / "configs" / "cpu.pbtxt").read_text()
    (folder / "config.pbtxt").write_text(re.sub(r"^parameters .*$", "", text, flags=re.MULTILINE))
