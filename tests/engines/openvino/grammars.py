"""Grammars and schemas by name, as (kind, text): small to read and endless to compile, heavy, and ordinary ones."""

from __future__ import annotations

import json


def objects(count, **fields):
    properties = {f"property_{number}": {"type": "string", **fields} for number in range(count)}
    return {"type": "object", "properties": properties}


def nested(levels, inner=None):
    schema = inner or objects(8)
    for _ in range(levels):
        schema = {"type": "object", "properties": {**objects(8)["properties"], "inner": schema}, "required": ["inner"]}
    return schema


def schema(value):
    return "json_schema", json.dumps(value, separators=(",", ":"))


def ebnf(*rules):
    return "ebnf_grammar", "\n".join(rules)


def doubling(count):
    return ebnf("root ::= r0", *(f"r{n} ::= r{n + 1} r{n + 1}" for n in range(count)), f"r{count} ::= [a-z]{{1,100}}")


# Minutes of work, or none that could end in a text: refused by the limits, by their form, or by the library.
ENDLESS = {
    "three repetitions": ebnf('root ::= (("a"{1,1000}){1,1000}){1,1000}'),
    "a rule of itself": ebnf("root ::= root"),
    "two rules of each other": ebnf("root ::= a", "a ::= root"),
    "a rule of itself and more": ebnf('root ::= "" root'),
    "a regex of repetitions": ("regex", "((a{1,1000}){1,1000}){1,1000}"),
    "arrays in arrays": ("json_schema", '{"type":"array","items":' * 400 + "{}" + "}" * 400),
    "arrays beyond the parser": ("json_schema", '{"items":' * 1500 + "{}" + "}" * 1500),
    "objects in objects": ("json_schema", '{"type":"object","properties":{"a":' * 300 + "{}" + "}}" * 300),
    "allOf in allOf": ("json_schema", '{"allOf":[' * 400 + "{}" + "]}" * 400),
    "anyOf in anyOf": ("json_schema", '{"anyOf":[' * 400 + "{}" + "]}" * 400),
    "a schema of itself": schema({"$ref": "#"}),
    "a definition of itself": schema({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
    "a reference to a file": schema({"$ref": "file:///etc/passwd"}),
    "a reference to a URL": schema({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1/a"}}}),
    "a reference to another schema": schema({"items": {"$ref": "other.json#/$defs/a"}}),
    "a reference that leads nowhere": schema({"$ref": "#/$defs/missing"}),
    "a pattern of repetitions": schema({"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"}),
    "a key's pattern of repetitions": schema(
        {"type": "object", "patternProperties": {"^((a{1,1000}){1,1000}){1,1000}$": {"type": "string"}}}
    ),
    "no grammar at all": ebnf("root := a"),
    "no schema at all": ("json_schema", "{"),
}
# 20 s of CPU time each.
LONGEST = {
    "three repetitions",
    "a regex of repetitions",
    "a pattern of repetitions",
    "a key's pattern of repetitions",
}

# Near the limits: a fast machine may compile one of these in time. Nothing else may happen to them.
HEAVY = {
    "a text of bounded length": ("regex", r"[^\n]{1,500}"),
    "repetition of a repetition": ebnf('root ::= ("a"{1,1000}){1,1000}'),
    "four repetitions": ebnf('root ::= ((("a"{1,99}){1,99}){1,99}){1,99}'),
    "repetition of a class": ebnf("root ::= ([a-z]{1,1000}){1,1000}"),
    "repetition of words": ebnf('root ::= (("abc" | "abd" | "x"){1,500}){1,500}'),
    "exact repetitions": ebnf('root ::= ((("a"){300}){300}){300}'),
    "rules that double": doubling(14),
    "rules that double often": doubling(24),
    "a regex of two repetitions": ("regex", "(a{1,1000}){1,1000}"),
    "a regex of classes": ("regex", "([a-z0-9]{1,500}){1,500}"),
    "a regex of anything": ("regex", "((.*a){200}){50}"),
    "a regex of ends": ("regex", "((a|b)*c(d|e)?){1,3000}" * 3),
    "a regex of optional parts": ("regex", "((a?){300}(b?){300}){300}"),
    "hundreds of properties": schema({"type": "object", "properties": {f"p{n}": {} for n in range(900)}}),
    "hundreds of strings": schema({"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(500)}}),
    "brackets in a grammar": ebnf("root ::= (" * 3000 + '"a"' + ")" * 3000),
    "brackets without end": ("regex", "(" * 7000 + "a" + ")" * 7000),
}

ORDINARY = {
    "any JSON": ("json", ""),
    "an address": schema(objects(6) | {"required": ["property_0", "property_3"], "additionalProperties": False}),
    "fifty properties": schema(objects(50)),
    "fifty that are required": schema(objects(50) | {"required": [f"property_{n}" for n in range(50)]}),
    "five levels": schema(nested(5)),
    "an enum of 100": schema({"enum": [f"value number {n}" for n in range(100)]}),
    "arrays of objects": schema({"type": "array", "items": objects(12), "minItems": 1, "maxItems": 20}),
    "a tree": schema(
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
        }
    ),
    "definitions": schema({"$ref": "#/$defs/a", "$defs": {"a": objects(5)}}),
    "a property called $ref": schema({"type": "object", "properties": {"$ref": {"type": "string"}}}),
    "numbers with limits": schema({"type": "integer", "minimum": 0, "maximum": 1000}),
    "anyOf": schema({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}, objects(3)]}),
    "formats": schema(objects(4, format="date-time")),
    "a date": ("regex", r"\d{4}-(0[1-9]|1[0-2])-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})"),
    "an e-mail": ("regex", r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}"),
    "a short text": ("regex", "[A-Za-z]{1,20}"),
    "arithmetic": ebnf('root ::= term (("+" | "-") term)*', 'term ::= [0-9]+ | "(" root ")"'),
    "a word": ebnf('root ::= "yes" | "no"'),
}
