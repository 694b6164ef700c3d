"""Which library computes: the parameter `engine` of config.pbtxt says it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engines.llmapi import settings as llmapi
from engines.worker import parameters
from engines.worker.parameters import BadParameter, EngineParameters

_PARAMETER = "engine"
_DEFAULT = "openvino"


@dataclass(frozen=True)
class Kind:
    """`pipeline` is "module:class", imported by the worker process alone; `read` makes its settings.

    `grammars` is the same for the process that tries grammars out.
    """

    pipeline: str
    grammars: str
    read: Callable[[Mapping[str, str]], EngineParameters]


_KINDS = {
    "openvino": Kind(
        "engines.openvino.pipeline:OpenVinoPipeline", "engines.openvino.grammar:GrammarTrial", parameters.read
    ),
    "llmapi": Kind("engines.llmapi.pipeline:LlmApiPipeline", "engines.llmapi.grammar:GrammarTrial", llmapi.read),
}


def choose(given: Mapping[str, str]) -> tuple[Kind, EngineParameters]:
    """The library that config.pbtxt's parameters name, and its settings. Raises BadParameter."""
    name = given.get(_PARAMETER, _DEFAULT)
    if name not in _KINDS:
        raise BadParameter(f"parameter {_PARAMETER} is {name!r}; legal: {', '.join(_KINDS)}, remote")
    kind = _KINDS[name]
    return kind, kind.read({key: value for key, value in given.items() if key != _PARAMETER})
