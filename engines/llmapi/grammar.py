"""Tries a grammar before it reaches the engine: a wrong one would count as its failure, a large one stop its steps."""

from __future__ import annotations

import importlib
import logging
from contextlib import suppress
from typing import Any

from bls.errors import BadRequest
from bls.manifest import Manifest
from engines.llmapi import library
from engines.llmapi.settings import LlmApiParameters
from engines.worker.generation import Guide
from engines.worker.grammar_errors import reason

log = logging.getLogger(__name__)

_PARSERS = {"json_schema": "from_json_schema", "regex": "from_regex", "ebnf_grammar": "from_ebnf"}


class GrammarCheck:
    """Reads grammars with xgrammar's own parser, which needs no vocabulary; without that package it lets all pass."""

    def __init__(self) -> None:
        self._grammar: Any = None
        with suppress(ImportError):
            self._grammar = importlib.import_module("xgrammar").Grammar

    def check(self, guide: Guide) -> Any:
        """xgrammar's Grammar, or None where it can't be read here. Raises BadRequest with what is wrong in it."""
        if self._grammar is None or guide.kind not in _PARSERS:
            return None
        try:
            return getattr(self._grammar, _PARSERS[guide.kind])(guide.text)
        except Exception as error:  # RuntimeError, or the JSON reader's own.
            raise BadRequest(f"guided_decoding_guide is not a valid {guide.kind}: {reason(error)}") from None


class GrammarTrial:
    """What engines/worker/grammar_process.py runs: the parser, and the compiler where the tokenizer is at hand."""

    def __init__(self, manifest: Manifest, parameters: LlmApiParameters) -> None:
        self._parser = GrammarCheck()
        self._compiler = _compiler(library.model_of(manifest, parameters), manifest.vocab_size)

    def check(self, guide: Guide) -> None:
        """Raises BadRequest with what is wrong in the grammar."""
        grammar = self._parser.check(guide)
        if grammar is not None and self._compiler is not None:
            self._compiler.compile_grammar(grammar)


def _compiler(model: str, vocab_size: int) -> Any:
    """As TensorRT-LLM makes its own, of the Hugging Face tokenizer."""
    try:
        xgrammar = importlib.import_module("xgrammar")
        tokenizer = importlib.import_module("transformers").AutoTokenizer.from_pretrained(model)
        return xgrammar.GrammarCompiler(xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab_size))
    except Exception:  # One of the packages is missing, or the tokenizer is of another kind: the parser's limits hold.
        log.warning("grammars are parsed, but not compiled, before they reach the engine", exc_info=True)
        return None
