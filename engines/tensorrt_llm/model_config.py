"""What TensorRT-LLM has to know of a model's config.json, and whether a tier's spec suits the model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.builders.sources import BadSource
from engines.tensorrt_llm.spec import GpuSpec
from engines.tensorrt_llm.suitability import Dimensions, context_tokens, unsuited

# model_type: whose convert_checkpoint.py reads it; tensorrt_llm/models/__init__.py of 1.1 has them as engines.
FAMILIES = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "qwen",
    "qwen2_moe": "qwen",
    "qwen3": "qwen",
    "qwen3_moe": "qwen",
}
_NAMES = {"llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen": "qwen"}


@dataclass(frozen=True)
class ModelConfig:
    """`kind` is the model_type; `quantised_as` is the method of a model that is saved quantised, or ""."""

    name: str
    kind: str
    layers: int
    heads: int
    kv_heads: int
    hidden_size: int
    intermediate_size: int
    context_tokens: int
    quantised_as: str

    @classmethod
    def of(cls, name: str, config: Mapping[str, Any]) -> ModelConfig:
        """Raises BadSource, which names the key."""
        try:
            heads = _count(config, "num_attention_heads")
            return cls(
                name=name,
                kind=str(_present(config, "model_type")),
                layers=_count(config, "num_hidden_layers"),
                heads=heads,
                kv_heads=heads if config.get("num_key_value_heads") is None else _count(config, "num_key_value_heads"),
                hidden_size=_count(config, "hidden_size"),
                intermediate_size=_count(config, "intermediate_size"),
                context_tokens=context_tokens(_count(config, "max_position_embeddings"), config.get("rope_scaling")),
                quantised_as=_quantised_as(config),
            )
        except ValueError as error:
            raise BadSource(f"{name}: config.json: {error}") from None

    @property
    def family(self) -> str:
        """Whose convert_checkpoint.py reads the model: a key of flags.CONVERT. Raises BadSource."""
        if self.kind not in FAMILIES:
            known = f"engines can be built for {', '.join(FAMILIES)}"
            raise BadSource(f"{self.name} is a model of the type {self.kind}; {known}; --engine takes an existing one")
        return FAMILIES[self.kind]

    def check_as_it_is(self, spec: GpuSpec) -> None:
        """Raises BadSource if `spec` asks of the LLM API what the model can't do: it is served as it is saved."""
        if spec.quantisation != "none":
            advice = 'name a model that was saved quantised, and "none"'
            raise BadSource(f'quantisation is "{spec.quantisation}"; the LLM API serves what is saved: {advice}')
        self.check(spec)

    def check(self, spec: GpuSpec) -> None:
        """Raises BadSource if `spec` asks for what the model can't do."""
        widths = {"hidden_size": self.hidden_size, "intermediate_size": self.intermediate_size}
        found = unsuited(spec, Dimensions(self.layers, self.heads, self.kv_heads, self.context_tokens, widths))
        if found:
            raise BadSource(found)
        if self.quantised_as and spec.quantisation != "none":
            saved = f'the model was saved quantised ({self.quantised_as}), which takes "none"'
            raise BadSource(f'quantisation is "{spec.quantisation}"; {saved}')


def family_by_name(name: str) -> str:
    """A guess from the model's name: "Qwen2.5-7B-Instruct" is of the family qwen. Raises BadSource."""
    family = family_in(name)
    if family is None:
        raise BadSource(f"whose model {name} is can't be told from its name; give a folder with its config.json")
    return family


def family_in(text: str) -> str | None:
    """The family that a name in `text` tells, such as that of a folder; None if none does."""
    return next((family for name, family in _NAMES.items() if name in text.lower()), None)


# Families whose engines TensorRT-LLM builds, or built, by scripts that are not known here: names of folders and models.
_OTHERS = re.compile(
    r"(?<![a-z])(arctic|baichuan|bart|bert|blip2?|bloom|chatglm|cogvlm|commandr|command-r|dbrx|deepseek|enc_dec|exaone|"
    r"falcon|gemma|glm|gpt2|gptj|gpt-j|gptneox|gpt-neox|gpt|granite|grok|internlm|jais|kimi|mamba|mllama|mpt|nemotron|nmt|"
    r"opt|phi|recurrentgemma|skywork|smaug|starcoder|t5|whisper)(?![a-z])",
    re.IGNORECASE,
)
_FOLDER = re.compile(r"examples/(?:models/(?:core|contrib)/)?([\w-]+)/")


def other_family(program: str, line: str) -> str | None:
    """A family that has no conversion here, by the folder of its program or else by a name in the line."""
    if folder := _FOLDER.search(program):
        return None if family_in(folder[1]) or folder[1] == "quantization" else folder[1]
    if family_in(line):
        return None
    found = _OTHERS.search(line)
    return found[1].lower() if found else None


def _present(config: Mapping[str, Any], key: str) -> Any:
    value = config.get(key)
    if value is None:
        raise ValueError(f"{key} is missing")
    return value


def _count(config: Mapping[str, Any], key: str) -> int:
    value = _present(config, key)
    if type(value) is not int or value < 1:
        raise ValueError(f"{key} is {value!r}; it must be a whole number above 0")
    return value


def _quantised_as(config: Mapping[str, Any]) -> str:
    found = config.get("quantization_config") or {}
    if not isinstance(found, Mapping):
        raise ValueError(f"quantization_config is {found!r}; it must be an object")
    return str(found.get("quant_method", ""))
