"""What TensorRT-LLM has to know of a model's config.json, and whether a tier's spec suits the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.sources import BadSource
from engines.tensorrt_llm.spec import GpuSpec
from engines.tensorrt_llm.suitability import ROPE_WITHIN, Dimensions, unsuited

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
        """Raises BadSource."""
        try:
            return cls(
                name=name,
                kind=str(config["model_type"]),
                layers=int(config["num_hidden_layers"]),
                heads=int(config["num_attention_heads"]),
                kv_heads=int(config.get("num_key_value_heads") or config["num_attention_heads"]),
                hidden_size=int(config["hidden_size"]),
                intermediate_size=int(config["intermediate_size"]),
                context_tokens=_context_tokens(config),
                quantised_as=str((config.get("quantization_config") or {}).get("quant_method", "")),
            )
        except KeyError as error:
            raise BadSource(f"{name} doesn't say its {error.args[0]}") from None
        except (TypeError, ValueError, AttributeError) as error:
            raise BadSource(f"{name}: config.json: {error}") from None

    @property
    def family(self) -> str:
        """Whose convert_checkpoint.py reads the model: a key of flags.CONVERT. Raises BadSource."""
        if self.kind not in FAMILIES:
            known = ", ".join(FAMILIES)
            raise BadSource(f"{self.name} is a model of the type {self.kind}; engines can be built of {known}")
        return FAMILIES[self.kind]

    def check_as_it_is(self, spec: GpuSpec) -> None:
        """Raises BadSource if `spec` asks of the LLM API what the model can't do: it is served as it is saved."""
        if spec.quantisation != "none":
            advice = 'name a model that is saved so, and "none"'
            raise BadSource(f'quantisation is "{spec.quantisation}"; the LLM API serves what is saved: {advice}')
        self.check(spec)

    def check(self, spec: GpuSpec) -> None:
        """Raises BadSource if `spec` asks for what the model can't do."""
        widths = {"hidden_size": self.hidden_size, "intermediate_size": self.intermediate_size}
        found = unsuited(spec, Dimensions(self.layers, self.heads, self.kv_heads, self.context_tokens, widths))
        if found:
            raise BadSource(found)
        if self.quantised_as and spec.quantisation != "none":
            saved = f'the model is saved quantised ({self.quantised_as}), which takes "none"'
            raise BadSource(f'quantisation is "{spec.quantisation}"; {saved}')


def family_by_name(name: str) -> str:
    """A guess from the model's name: "Qwen2.5-7B-Instruct" is of the family qwen. Raises BadSource."""
    for family in dict.fromkeys(FAMILIES.values()):
        if family in name.lower():
            return family
    raise BadSource(f"whose model {name} is can't be told from its name; give a folder with its config.json")


def _context_tokens(config: Mapping[str, Any]) -> int:
    longest = int(config["max_position_embeddings"])
    rope = config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type"))
    return longest if kind in ROPE_WITHIN else int(longest * float(rope.get("factor", 1)))
