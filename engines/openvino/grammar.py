"""Compiles a grammar before it reaches the pipeline: in a process apart, to learn what it costs, then in the worker.

OpenVINO GenAI compiles grammars inside step(), where one that is wrong breaks the pipeline for everybody; its own check
is not reachable from Python. So each is compiled first for a model that computes nothing, through the same tokenizer,
whose compiler keeps what it compiled, for ever: 300 schemas of 8 properties made the process larger by 26 MiB, the
same schema 300 times by nothing.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai
from openvino import opset13 as opset

from bls.errors import BadRequest
from bls.manifest import Manifest
from engines.openvino.model_path import readable_model
from engines.worker.generation import Guide
from engines.worker.grammar_errors import reason
from engines.worker.parameters import EngineParameters

_FIELDS = {"json": "json_schema", "json_schema": "json_schema", "regex": "regex", "ebnf_grammar": "grammar"}
_ANY_JSON = "{}"
_TRIAL_TOKENS = 16
_NOTHING = 0  # The id that wins only where no other is allowed: of logits that are all masked the first one is taken.


def structured_output(guide: Guide) -> Any:
    """OpenVINO's StructuredOutputConfig for a guide."""
    config = openvino_genai.StructuredOutputConfig()
    setattr(config, _FIELDS[guide.kind], _ANY_JSON if guide.kind == "json" else guide.text)
    return config


class GrammarCheck:
    """`kept_bytes` is by how much the process grew while it checked: what the compiler keeps of all grammars."""

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            openvino.save_model(_silent_model(vocab_size), f"{folder}/openvino_model.xml")
            self._pipeline = openvino_genai.LLMPipeline(folder, tokenizer, "CPU", ATTENTION_BACKEND="SDPA")
        self.kept_bytes = 0

    def check(self, guide: Guide, tokens: int = 1) -> list[int]:
        """What the grammar lets through first, the lowest id each time. Raises BadRequest with what is wrong in it."""
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = tokens
        config.structured_output_config = structured_output(guide)
        before = _resident_bytes()
        try:
            result = self._pipeline.generate(openvino.Tensor(np.zeros((1, 1), dtype=np.int64)), config)
            return list(result.tokens[0])
        except RuntimeError as error:
            raise BadRequest(f"guided_decoding_guide is not a valid {guide.kind}: {reason(error)}") from None
        finally:
            self.kept_bytes += max(0, _resident_bytes() - before)


class GrammarTrial:
    """What engines/worker/grammar_process.py runs: the same compiler with the same vocabulary, and some steps."""

    def __init__(self, manifest: Manifest, parameters: EngineParameters) -> None:
        with readable_model(manifest) as path:
            tokenizer = openvino_genai.Tokenizer(path)
        self._check = GrammarCheck(tokenizer, manifest.vocab_size)
        self._check.check(Guide("regex", "[a-z]"))  # The compiler is made with the first one.

    def check(self, guide: Guide) -> None:
        """Raises BadRequest, also for a grammar that no text keeps."""
        if _NOTHING in self._check.check(guide, _TRIAL_TOKENS):
            raise BadRequest(f"guided_decoding_guide is a {guide.kind} that no text keeps")


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _silent_model(vocab_size: int) -> openvino.Model:
    """The inputs and outputs of a language model, with logits that are all zero, but for the one below."""
    input_ids = opset.parameter([-1, -1], np.int64, name="input_ids")
    attention_mask = opset.parameter([-1, -1], np.int64, name="attention_mask")
    beam_idx = opset.parameter([-1], np.int32, name="beam_idx")
    for parameter in (input_ids, attention_mask, beam_idx):
        parameter.output(0).set_names({parameter.get_friendly_name()})
    row = np.zeros(vocab_size, dtype=np.float32)
    row[_NOTHING] = -1
    shape = opset.concat([opset.shape_of(input_ids), opset.constant(np.array([vocab_size], dtype=np.int64))], 0)
    logits = opset.broadcast(opset.constant(row), shape)
    logits.output(0).set_names({"logits"})
    return openvino.Model([logits], [input_ids, attention_mask, beam_idx], "silent")
