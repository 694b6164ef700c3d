import dataclasses

import numpy as np
import pytest

from bls import manifest
from bls.contract import LARGE, POSTPROCESSING, SMALL
from bls.engine_files import EngineFiles
from bls.errors import EngineUnavailable
from bls.tokens import byte_table
from bls.tokens.stream_decoder import WindowDecoder
from tests.fakes import engine_folders


class Caller:
    """A postprocessing whose ids are code points."""

    def __init__(self):
        self.tiers = []

    def call(self, model, tensors, outputs):
        assert model == POSTPROCESSING
        self.tiers.append(tensors["TIER"].flat[0])
        text = "".join(chr(token) for token in tensors["TOKENS_BATCH"].flat)
        return {"OUTPUT": np.array([text.encode()], dtype=np.object_)}


def build(folder, sha256="a" * 64, joins="byte_level", **changes):
    """engine.json and a byte table whose three tokens are "a", "b" and a special one."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = manifest.TokenizerFile("huggingface", "tokenizer", sha256)
    built = manifest.Manifest(folder, "test", "openvino", "weights", 128, 3, (2,), 2, tokenizer)
    dataclasses.replace(built, **changes).save()
    header = byte_table.Header(sha256, joins, vocab_size=3)
    kinds = [byte_table.TEXT, byte_table.TEXT, byte_table.SPECIAL]
    built.token_bytes_path.write_bytes(byte_table.serialize(header, kinds, [b"a", b"b", b"</s>"]))


@pytest.fixture
def repository(tmp_path):
    for tier in ("small", "large"):
        build(tmp_path / "engines" / "built" / tier)
    return engine_folders(tmp_path / "model_repository")


def test_engines_with_the_same_tokenizer_are_tokenized_once(repository, tmp_path):
    assert EngineFiles(repository, Caller()).tokenized_by(LARGE) == SMALL
    build(tmp_path / "engines" / "built" / "large", sha256="b" * 64)
    assert EngineFiles(repository, Caller()).tokenized_by(LARGE) == LARGE


def test_an_engine_that_is_rebuilt_while_it_serves_changes_nothing_until_a_restart(repository, tmp_path):
    engines = EngineFiles(repository, Caller())
    assert engines.manifest(SMALL).context_tokens == 128
    build(tmp_path / "engines" / "built" / "small", sha256="b" * 64, context_tokens=64)
    assert engines.manifest(SMALL).context_tokens == 128
    with pytest.raises(EngineUnavailable, match="another tokenizer"):
        engines.decoder(SMALL)  # Its table was not read before.


def test_an_engine_that_was_never_built_is_unavailable(tmp_path):
    with pytest.raises(EngineUnavailable, match=r"tensorrt_llm_small has no readable engine.json"):
        EngineFiles(engine_folders(tmp_path / "model_repository"), Caller()).manifest(SMALL)


def test_a_table_of_another_tokenizer_is_not_used(repository, tmp_path):
    folder = tmp_path / "engines" / "built" / "small"
    build(folder, sha256="b" * 64)
    table = (folder / "token_bytes.bin").read_bytes()
    build(folder)
    (folder / "token_bytes.bin").write_bytes(table)
    with pytest.raises(EngineUnavailable, match=r"token_bytes.bin of tensorrt_llm_small belongs to another tokenizer"):
        EngineFiles(repository, Caller()).decoder(SMALL)


def test_ids_become_text_from_the_table_without_a_call(repository):
    caller = Caller()
    decoder = EngineFiles(repository, caller).decoder(SMALL)
    assert decoder.push([0, 1, 2]) + decoder.finish() == "ab"
    assert caller.tiers == []


def test_a_tokenizer_without_a_table_is_decoded_by_calls_of_its_tier(repository, tmp_path):
    build(tmp_path / "engines" / "built" / "large", joins=byte_table.UNSUPPORTED)
    caller = Caller()
    decoder = EngineFiles(repository, caller).decoder(LARGE)
    assert isinstance(decoder, WindowDecoder)
    assert decoder.push([104, 105]) + decoder.finish() == "hi"
    assert set(caller.tiers) == {b"large"}
