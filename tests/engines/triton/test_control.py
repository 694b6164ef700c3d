"""What engine_control answers: a stop, and which model an engine has."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bls import manifest
from bls.arrays import strings
from bls.contract import SMALL
from bls.errors import BadRequest
from bls.paths import MODEL_REPOSITORY
from engines.triton import identity
from engines.triton.control import Control
from tests.fakes import FakeModels

BUILT = manifest.load(manifest.built_folder(MODEL_REPOSITORY, "small"))


def asked(models, requested, engine=SMALL, request_id="a", repository=MODEL_REPOSITORY):
    inputs = {"engine": strings(engine), "request_id": strings(request_id)}
    return Control(models, repository).answer(inputs, frozenset(requested))


def test_a_stop_goes_to_the_engine_under_the_requests_id():
    models = FakeModels()
    assert asked(models, {"stopped"})["stopped"].all()
    ((model, request_id, tensors),) = models.calls
    assert (model, request_id, tensors["stop"].item()) == (SMALL, "a", True)


def test_who_asks_for_the_identity_alone_stops_nothing():
    models = FakeModels()
    found = asked(models, {"identity"}, request_id="")
    assert identity.difference(identity.of(BUILT), found["identity"].item().decode()) == ""
    assert list(found) == ["identity"] and models.calls == []


def test_an_engine_that_is_not_built_has_no_identity(tmp_path):
    assert asked(FakeModels(), {"identity"}, repository=tmp_path)["identity"].item() == b""


@pytest.mark.parametrize(
    ("given", "said"),
    [({"engine": "llm_router"}, "the names of engine models begin with"), ({"request_id": ""}, "request_id is empty")],
)
def test_what_is_no_engine_or_no_id_is_refused(given, said):
    with pytest.raises(BadRequest, match=said):
        asked(FakeModels(), {"stopped"}, **given)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "other"}, "its name is other, and here it is SmolLM2-135M-Instruct"),
        ({"context_tokens": 1}, "its context_tokens is 1"),
        ({"end_ids": (0, 2)}, r"its end_ids is \[0, 2\]"),
        ({"tokenizer": replace(BUILT.tokenizer, sha256="f" * 64)}, r"its tokenizer is f{12}\.\.\.,"),
    ],
)
def test_another_model_is_told_by_what_differs(change, said):
    other = identity.written(identity.of(replace(BUILT, **change)))
    assert re.search(said, identity.difference(identity.of(BUILT), other))


@pytest.mark.parametrize(
    "change", [{"builder": "tensorrt_llm"}, {"weights": "engine"}, {"chat_template_kwargs": {"a": 1}}]
)
def test_the_same_model_computed_in_another_way_is_the_same(change):
    assert identity.difference(identity.of(BUILT), identity.written(identity.of(replace(BUILT, **change)))) == ""


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "{", '"a"'])
def test_who_does_not_say_is_not_taken_for_the_same(text):
    assert identity.difference(identity.of(BUILT), text) == "it doesn't say which model it serves"
