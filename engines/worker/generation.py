"""What to generate: an engine request without its tensors, valid by construction, small enough to cross processes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bls.contract import GREEDY_BELOW, PENALTIES
from bls.errors import BadRequest
from engines.worker.schema_rules import check_schema

GUIDE_KINDS = ("json", "json_schema", "regex", "ebnf_grammar")

MAX_GUIDE_BYTES = 16_384  # What it costs to compile is bounded elsewhere: engines/worker/grammar_process.py.
# Each new id is compared with the end of each word.
MAX_STOP_WORDS = 256  # 64 of a client, each in two spellings, and the end ids of a chat model beside them.
MAX_STOP_WORD_IDS = 256


@dataclass(frozen=True)
class Guide:
    """A grammar that the output keeps; `text` is the schema, the pattern or the grammar ("" for "json": any JSON)."""

    kind: str
    text: str

    def __post_init__(self) -> None:
        if self.kind not in GUIDE_KINDS:
            raise BadRequest(f"guided_decoding_guide_type is {self.kind!r}; known: {', '.join(GUIDE_KINDS)}")
        if self.kind != "json" and not self.text:
            raise BadRequest(f"guided_decoding_guide is missing: guide type {self.kind} needs one")
        size = len(self.text.encode())
        if size > MAX_GUIDE_BYTES:
            raise BadRequest(f"guided_decoding_guide has {size} bytes; at most {MAX_GUIDE_BYTES} are taken")
        if self.kind == "json_schema":
            check_schema(self.text)


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. `temperature` 0 means the likeliest one; `top_k` 0 and `top_p` 1 keep all.

    What 32-bit arithmetic can't do is done as what it can't be told from: below GREEDY_BELOW only the likeliest token
    is left to draw (OpenVINO divides by the temperature, which overflows below 1e-38), and a penalty beyond PENALTIES
    decides alone.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        _check_range("temperature", self.temperature, 0.0, math.inf)
        _check_range("runtime_top_p", self.top_p, 0.0, 1.0)
        _check_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        if self.top_k < 0:
            raise BadRequest(f"runtime_top_k is {self.top_k}; it must be at least 0")
        if not (math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0):
            raise BadRequest(f"repetition_penalty is {self.repetition_penalty:g}; it must be a number above 0")
        least, most = PENALTIES
        object.__setattr__(self, "repetition_penalty", min(max(self.repetition_penalty, least), most))

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW or self.top_k == 1 or self.top_p < GREEDY_BELOW


def _check_range(name: str, value: float, least: float, most: float) -> None:
    if not (math.isfinite(value) and least <= value <= most):
        wanted = f"at least {least:g}" if math.isinf(most) else f"from {least:g} to {most:g}"
        raise BadRequest(f"{name} is {value:g}; it must be a number {wanted}")


@dataclass(frozen=True)
class Generation:
    """One prompt to be continued by up to `max_tokens` ids. `stop_words` are sequences of ids, kept in the output."""

    prompt: tuple[int, ...]
    max_tokens: int
    end_ids: frozenset[int]
    sampling: Sampling = Sampling()
    stop_words: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = 0
    guide: Guide | None = None
    log_probs: bool = False

    def __post_init__(self) -> None:
        if not self.prompt:
            raise BadRequest("input_ids is empty; at least 1 token is needed")
        if self.max_tokens < 1:
            raise BadRequest(f"request_output_len is {self.max_tokens}; it must be at least 1")
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise BadRequest(
                f"min_tokens is {self.min_tokens}; it must be from 0 to request_output_len ({self.max_tokens})"
            )
        if len(self.stop_words) > MAX_STOP_WORDS:
            raise BadRequest(f"stop_words_list holds {len(self.stop_words)} words; at most {MAX_STOP_WORDS} are taken")
        longest = max(map(len, self.stop_words), default=0)
        if longest > MAX_STOP_WORD_IDS:
            raise BadRequest(f"stop_words_list holds a word of {longest} ids; at most {MAX_STOP_WORD_IDS} are taken")

    def kv_blocks(self, block_tokens: int) -> int:
        """Blocks of the KV cache that it needs at most."""
        return -(-(len(self.prompt) + self.max_tokens) // block_tokens)


@dataclass(frozen=True)
class Limits:
    """What an engine can take. `cache_tokens` is its KV cache's size; `prompt_tokens` is the longest prompt."""

    context_tokens: int
    vocab_size: int
    end_ids: frozenset[int]
    cache_tokens: int
    prompt_tokens: int

    def check(self, generation: Generation) -> None:
        """Raises BadRequest with the numbers that don't fit."""
        prompt, output = len(generation.prompt), generation.max_tokens
        for name, most in (("context", self.context_tokens), ("KV cache", self.cache_tokens)):
            if prompt + output > most:
                raise BadRequest(
                    f"{prompt} prompt tokens + request_output_len {output} = {prompt + output}; "
                    f"the {name} of this engine holds {most}"
                )
        if prompt > self.prompt_tokens:
            raise BadRequest(
                f"the prompt has {prompt} tokens; without enable_chunked_context at most max_num_tokens "
                f"({self.prompt_tokens}) fit into one step"
            )
        for name, ids in (("input_ids", generation.prompt), ("end_id", generation.end_ids)):
            self._check_ids(name, ids)
        for word in generation.stop_words:
            self._check_ids("stop_words_list", word)

    def _check_ids(self, name: str, ids: tuple[int, ...] | frozenset[int]) -> None:
        if min(ids) < 0 or max(ids) >= self.vocab_size:
            wrong = next(token for token in ids if not 0 <= token < self.vocab_size)
            raise BadRequest(f"{name} holds {wrong}; this engine's ids are from 0 to {self.vocab_size - 1}")
