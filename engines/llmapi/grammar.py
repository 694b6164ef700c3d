"""Tries a grammar before it reaches the engine, where a wrong one would count as the engine's failure."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

from bls.errors import BadRequest
from engines.worker.generation import Guide
from engines.worker.grammar_errors import reason

_PARSERS = {"json_schema": "from_json_schema", "regex": "from_regex", "ebnf_grammar": "from_ebnf"}


class GrammarCheck:
    """Reads grammars with xgrammar's own parser, which needs no vocabulary; without that package it lets all pass."""

    def __init__(self) -> None:
        self._grammar: Any = None
        with suppress(ImportError):
            self._grammar = importlib.import_module("xgrammar").Grammar

    def check(self, guide: Guide) -> None:
        """Raises BadRequest with what is wrong in the grammar."""
        if self._grammar is None or guide.kind not in _PARSERS:
            return
        try:
            getattr(self._grammar, _PARSERS[guide.kind])(guide.text)
        except Exception as error:  # RuntimeError, or the JSON reader's own.
            raise BadRequest(f"guided_decoding_guide is not a valid {guide.kind}: {reason(error)}") from None
