"""What stands in for xgrammar's grammars: it finds the mistakes that tests make, in xgrammar's own words."""

from __future__ import annotations

import json
import re

TYPES = {"string", "number", "integer", "boolean", "object", "array", "null"}


class Grammar:
    @staticmethod
    def from_json_schema(schema: str) -> Grammar:
        try:
            kind = json.loads(schema).get("type", "object")
        except ValueError as error:
            raise RuntimeError(f"[10:20:30] /project/cpp/json_schema.cc:7: Failed to parse JSON: {error}") from None
        if kind not in TYPES:
            raise RuntimeError(f'[10:20:30] /project/cpp/json_schema.cc:9: Unsupported type "{kind}"')
        return Grammar()

    @staticmethod
    def from_regex(regex: str) -> Grammar:
        try:
            re.compile(regex)
        except re.error as error:
            raise RuntimeError(f"[10:20:30] /project/cpp/regex.cc:3: Regex parsing error: {error}") from None
        return Grammar()

    @staticmethod
    def from_ebnf(grammar: str) -> Grammar:
        if not re.match(r"root\s*::=", grammar):
            raise RuntimeError("[10:20:30] /project/cpp/ebnf.cc:5: EBNF parser error at line 1: no root rule")
        return Grammar()
