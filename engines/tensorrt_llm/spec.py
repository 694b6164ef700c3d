"""What specs.toml says of a tier on GPUs, in [small.tensorrt_llm] and [large.tensorrt_llm]; it explains the keys."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any

PRECISIONS = ("auto", "float16", "bfloat16")
CALIBRATED = ("fp8", "nvfp4", "int8_sq", "int4_awq", "w4a8_awq")  # by how the model answers texts
AWQ = ("int4_awq", "w4a8_awq")
QUANTISATIONS = ("none", "fp8", "int8_weight_only", "int4_weight_only", "int4_awq", "w4a8_awq", "int8_sq", "nvfp4")
KV_CACHE_DTYPES = ("auto", "fp8")
TOKENS_PER_BLOCK = 32  # of the paged KV cache: trtllm-build's default

_CHOICES = {"precision": PRECISIONS, "quantisation": QUANTISATIONS, "kv_cache_dtype": KV_CACHE_DTYPES}
# What people ask for that isn't offered -> why, and what is. The int8 cache: attentionOp.cpp of TensorRT-LLM refuses it
# beside paged context FMHA, which KV reuse and chunked prompts need.
_GPTQ = 'TensorRT-LLM makes no GPTQ weights: name a model that was saved in GPTQ, as "none" reads it, or take int4_awq'
_INSTEAD = {
    ("quantisation", "int4_gptq"): _GPTQ,
    ("quantisation", "gptq"): _GPTQ,
    ("quantisation", "smoothquant"): "it is int8_sq here",
    ("quantisation", "awq"): "it is int4_awq here",
    (
        "kv_cache_dtype",
        "int8",
    ): "it excludes KV reuse and chunked prompts in TensorRT-LLM: take fp8, with quantisation fp8",
}
_TEXTS = ("model", "calib_dataset")


class BadGpuSpec(ValueError):
    """A key or a value is wrong; the message is one line that names it and what is legal."""


@dataclass(frozen=True)
class GpuSpec:
    """One tier on GPUs. Sizes are in tokens, but `max_batch_size` in requests; `workers` None is one per rank."""

    model: str
    max_seq_len: int
    precision: str = "auto"
    quantisation: str = "none"
    kv_cache_dtype: str = "auto"
    tp_size: int = 1
    pp_size: int = 1
    max_batch_size: int = 64
    max_input_len: int | None = None
    max_num_tokens: int = 8192
    workers: int | None = None
    calib_dataset: str = "cnn_dailymail"
    calib_size: int = 512
    quantise_lm_head: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            _check(field.name, getattr(self, field.name), optional=field.default is None)
        if self.max_seq_len < 2:
            raise BadGpuSpec(f"max_seq_len is {self.max_seq_len}; a prompt and an answer need at least 2 tokens")
        if self.longest_input >= self.max_seq_len:
            limit = f"max_seq_len ({self.max_seq_len}), which counts the prompt and the answer together"
            raise BadGpuSpec(f"max_input_len is {self.max_input_len}; it must be below {limit}")
        if self.max_num_tokens < max(self.max_batch_size, TOKENS_PER_BLOCK):
            limit = f"max_batch_size ({self.max_batch_size}) and {TOKENS_PER_BLOCK}, a block of the KV cache"
            raise BadGpuSpec(f"max_num_tokens is {self.max_num_tokens}; it must be at least {limit}")
        if self.quantise_lm_head and not self.is_calibrated:
            raise BadGpuSpec(
                f'quantise_lm_head needs quantisation {", ".join(CALIBRATED)}; it is "{self.quantisation}"'
            )
        if self.kv_cache_dtype == "fp8" and self.quantisation != "fp8":
            # TensorRT-LLM's builder.py would turn off paged context FMHA, without which KV reuse and chunked prompts,
            # which config.pbtxt asks for, can't be; with int8 caches too.
            raise BadGpuSpec(f'kv_cache_dtype "fp8" needs quantisation "fp8"; it is "{self.quantisation}"')

    @property
    def longest_input(self) -> int:
        return self.max_input_len or self.max_seq_len - 1

    @property
    def world_size(self) -> int:
        """How many GPUs serve one copy of the model."""
        return self.tp_size * self.pp_size

    @property
    def is_calibrated(self) -> bool:
        """Whether the quantisation goes by how the model answers texts."""
        return self.quantisation in CALIBRATED

    @classmethod
    def of(cls, table: dict[str, Any]) -> GpuSpec:
        """Raises BadGpuSpec for an unknown, a missing or a wrong key."""
        known = {field.name: field for field in fields(cls)}
        for key in table:
            if key not in known:
                raise BadGpuSpec(f"has {key!r}; known: {', '.join(known)}")
        for name, field in known.items():
            if field.default is MISSING and name not in table:
                raise BadGpuSpec(f"{name} is missing")
        return cls(**table)


def _check(name: str, value: object, optional: bool) -> None:
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            hint = _INSTEAD.get((name, value)) if isinstance(value, str) else None
            known = f"{name} is {value!r}; known: {', '.join(_CHOICES[name])}"
            raise BadGpuSpec(f"{known} ({hint})" if hint else known)
    elif name in _TEXTS:
        if not isinstance(value, str) or not value:
            raise BadGpuSpec(f"{name} is {value!r}; it must be a string")
    elif name == "quantise_lm_head":
        if type(value) is not bool:
            raise BadGpuSpec(f"{name} is {value!r}; it must be true or false")
    elif not (optional and value is None) and (type(value) is not int or value < 1):
        raise BadGpuSpec(f"{name} is {value!r}; it must be a whole number above 0")
