"""TensorRT-LLM's input tensors, read into a Generation and its wishes about the answer.

What this engine can't honour is refused by name where it would change the answer; absent, empty and neutral values are
fine, and so is all that tensorrt_llm_bls sends in any case.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bls.errors import BadRequest
from engines.worker.generation import Generation, Guide, Sampling

Arrays = Mapping[str, "np.ndarray[Any, Any]"]

# Values that ask for nothing: the inputs named here are taken with these, and refused with others.
_NEUTRAL: dict[str, tuple[float, ...]] = {
    "beam_width": (1,),
    "num_return_sequences": (1,),
    "runtime_top_p_decay": (1.0,),
    "return_context_logits": (0,),
    "return_generation_logits": (0,),
    "return_perf_metrics": (0,),
    "embedding_bias": (0.0,),
}

# What this engine does; each other input of the contract is refused unless it asks for nothing.
HONOURED = frozenset(
    {
        "input_ids",
        "input_lengths",
        "request_output_len",
        "end_id",
        "pad_id",
        "stop_words_list",
        "temperature",
        "runtime_top_k",
        "runtime_top_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "min_tokens",
        "seed",
        "return_log_probs",
        "exclude_input_in_output",
        "stop",
        "streaming",
        "guided_decoding_guide_type",
        "guided_decoding_guide",
    }
)


# What has no say in the answer of a decoder with one beam, so that it is taken with any value and not looked at.
IGNORED = frozenset(
    {
        # Of encoder-decoders: tensorrt_llm_bls sends these two with every request, others with some.
        "decoder_input_ids",
        "decoder_input_lengths",
        "encoder_output_lengths",
        "skip_cross_attn_blocks",
        # Of beam search; more beams than one are refused.
        "len_penalty",
        "early_stopping",
        "beam_search_diversity_rate",
        # Of a decaying top p, and of a prompt table; both are refused.
        "runtime_top_p_min",
        "runtime_top_p_reset_ids",
        "prompt_vocab_size",
        "prompt_table_extra_ids",
        # How fast the answer comes, not which: drafts of it, and how long the cache keeps it.
        "draft_input_ids",
        "draft_logits",
        "draft_acceptance_threshold",
        "lookahead_window_size",
        "lookahead_ngram_size",
        "lookahead_verification_set_size",
        "retention_token_range_starts",
        "retention_token_range_ends",
        "retention_token_range_priorities",
        "retention_token_range_durations_ms",
        "retention_decode_priority",
        "retention_decode_duration_ms",
    }
)


@dataclass(frozen=True)
class EngineRequest:
    """A generation and how to answer it: piece by piece or at once, the prompt's ids before the new ones or not."""

    generation: Generation
    streaming: bool
    exclude_input: bool
    errors_as_data: bool = False


def is_stop(arrays: Arrays) -> bool:
    """Whether the request ends another one, that of its own request id."""
    return bool(_Reader(arrays).scalar("stop", 0))


def read(arrays: Arrays, end_ids: frozenset[int], exclude_input: bool) -> EngineRequest:
    """The request that the tensors make; `end_ids` and `exclude_input` hold where they don't say. Raises BadRequest."""
    _refuse_unsupported(arrays)
    reader = _Reader(arrays)
    client_end_id = int(reader.scalar("end_id", -1))
    generation = Generation(
        prompt=reader.prompt(),
        max_tokens=int(reader.scalar("request_output_len", 0)),
        end_ids=end_ids if client_end_id == -1 else frozenset({client_end_id}),
        sampling=_sampling(reader),
        stop_words=reader.words("stop_words_list"),
        min_tokens=int(reader.scalar("min_tokens", 0)),
        guide=_guide(reader),
        log_probs=bool(reader.scalar("return_log_probs", 0)),
    )
    return EngineRequest(
        generation,
        streaming=bool(reader.scalar("streaming", 0)),
        exclude_input=bool(reader.scalar("exclude_input_in_output", exclude_input)),
    )


def split_rows(arrays: Arrays) -> list[Arrays]:
    """The tensors of each row of a batch, as requests of one row: the padding behind `input_lengths` is cut off."""
    ids, lengths = arrays.get("input_ids"), arrays["input_lengths"].reshape(-1).tolist()
    if ids is None or ids.ndim != 2:
        raise BadRequest("input_ids is missing" if ids is None else f"input_ids has shape {list(ids.shape)}")
    for name, array in arrays.items():
        if len(array) != len(ids):
            raise BadRequest(f"{name} has {len(array)} rows, input_ids has {len(ids)}")
    rows: list[Arrays] = []
    for row, length in enumerate(lengths):
        if not 0 <= length <= ids.shape[1]:
            raise BadRequest(f"input_lengths is {length}, but input_ids holds {ids.shape[1]} ids")
        of_row = {name: array[row : row + 1] for name, array in arrays.items()}
        rows.append({**of_row, "input_ids": ids[row : row + 1, :length]})
    return rows


def _refuse_unsupported(arrays: Arrays) -> None:
    for name, array in arrays.items():
        if name in HONOURED or name in IGNORED or array.size == 0:
            continue
        if name == "bad_words_list" and not _words(name, array):
            continue
        neutral = _NEUTRAL.get(name)
        if neutral is None:
            raise BadRequest(f"{name} is not supported by this engine")
        if not np.isin(array, neutral).all():
            raise BadRequest(f"{name} is {_shown(array)}; this engine supports {_choices(array, neutral)} only")


def _shown(array: np.ndarray[Any, Any]) -> str:
    if array.size > 1:
        return f"{array.size} values"
    return "true" if array.dtype == np.bool_ else f"{array.flat[0]:g}"


def _choices(array: np.ndarray[Any, Any], neutral: tuple[float, ...]) -> str:
    return "false" if array.dtype == np.bool_ else " or ".join(f"{value:g}" for value in neutral)


def _sampling(reader: _Reader) -> Sampling:
    # As in TensorRT-LLM's LLM API: without any of the three the likeliest token is taken.
    sampled = any(reader.has(name) for name in ("temperature", "runtime_top_k", "runtime_top_p"))
    return Sampling(
        temperature=float(reader.scalar("temperature", 1.0 if sampled else 0.0)),
        top_k=int(reader.scalar("runtime_top_k", 0)),
        top_p=float(reader.scalar("runtime_top_p", 1.0)),
        repetition_penalty=float(reader.scalar("repetition_penalty", 1.0)),
        presence_penalty=float(reader.scalar("presence_penalty", 0.0)),
        frequency_penalty=float(reader.scalar("frequency_penalty", 0.0)),
        seed=int(reader.scalar("seed", secrets.randbits(32))),
    )


def _guide(reader: _Reader) -> Guide | None:
    kind, text = reader.text("guided_decoding_guide_type"), reader.text("guided_decoding_guide")
    if kind is None:
        if text is not None:
            raise BadRequest("guided_decoding_guide is given without guided_decoding_guide_type")
        return None
    return Guide(kind, text or "")


def _words(name: str, array: np.ndarray[Any, Any]) -> tuple[tuple[int, ...], ...]:
    """Sequences of ids out of [2, N] or [1, 2, N]: row 0 all ids, row 1 the end of each word, filled up with -1."""
    if array.ndim not in (2, 3) or array.shape[-2] != 2 or array.shape[:-2] not in ((), (1,)):
        raise BadRequest(f"{name} has shape {list(array.shape)}; it must be [2, N] or [1, 2, N]")
    ids, offsets = array.reshape(2, -1).tolist()
    ends = [offset for offset in offsets if offset >= 0]
    starts = [0, *ends][: len(ends)]
    if any(not start < end <= len(ids) for start, end in zip(starts, ends, strict=True)):
        raise BadRequest(f"{name} has the word ends {ends}; they must increase, up to {len(ids)} at most")
    return tuple(tuple(ids[start:end]) for start, end in zip(starts, ends, strict=True))


class _Reader:
    """Typed reads. A tensor that is absent or empty gives the default."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays

    def has(self, name: str) -> bool:
        return name in self._arrays and self._arrays[name].size > 0

    def scalar(self, name: str, default: float) -> Any:
        if not self.has(name):
            return default
        array = self._arrays[name]
        if array.size != 1:
            raise BadRequest(f"{name} holds {array.size} values; it must be a single value")
        return array.reshape(-1).tolist()[0]

    def text(self, name: str) -> str | None:
        value = self.scalar(name, 0)
        if value == 0:
            return None
        try:
            return value.decode() if isinstance(value, bytes) else str(value)
        except UnicodeDecodeError:
            raise BadRequest(f"{name} is not UTF-8") from None

    def prompt(self) -> tuple[int, ...]:
        if not self.has("input_ids"):
            raise BadRequest("input_ids is empty; at least 1 token is needed")
        ids = self._arrays["input_ids"]
        if ids.ndim > 1 and ids.shape[0] != 1:
            raise BadRequest(f"input_ids has shape {list(ids.shape)}; this engine takes one sequence per request")
        length = self.scalar("input_lengths", ids.size)
        if length != ids.size:
            raise BadRequest(f"input_lengths is {length}, but input_ids holds {ids.size} ids")
        return tuple(ids.reshape(-1).tolist())

    def words(self, name: str) -> tuple[tuple[int, ...], ...]:
        return _words(name, self._arrays[name]) if self.has(name) else ()
