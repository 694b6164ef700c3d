"""The bodies of requests, read into checked structures: the errors name the field in the client's words."""

from __future__ import annotations

import difflib
import re
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from gateway.ask import MAX_INT32, Value
from gateway.failures import BadRequest

MAX_CHOICES = 8
MAX_USER_CHARACTERS = 256
MAX_STOPS = 64
MAX_UINT64 = 2**64 - 1

Count = Annotated[int, Meta(ge=1, le=MAX_INT32)]
CountOrZero = Annotated[int, Meta(ge=0, le=MAX_INT32)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
B = TypeVar("B", bound=Struct)


class StreamOptions(Struct):
    """`continuous_usage_stats` is vLLM's: usage in every chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: Any = None


class SamplingBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """What chat and text completions have in common; vLLM's names where OpenAI has none."""

    model: str
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    logit_bias: dict[str, Any] | None = None
    # Of vLLM and TensorRT-LLM.
    top_k: Annotated[int, Meta(ge=-1, le=MAX_INT32)] | None = None
    min_tokens: CountOrZero | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    bad_words: str | list[str] | None = None
    ignore_eos: bool | None = None
    # Without an effect here, and without harm.
    store: Any = None
    metadata: Any = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None

    @property
    def limit(self) -> int | None:
        """The most tokens that an answer may have; None for what fits."""
        return self.max_tokens


def decode(body: bytes, decoder: msgspec.json.Decoder[B]) -> B:
    """The body as the decoder's structure. Raises BadRequest with the field as `param`."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), decoder.type) from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:  # A UnicodeDecodeError is a ValueError.
        reason = str(error) if isinstance(error, msgspec.DecodeError) else "it is not UTF-8"
        raise BadRequest(f"the body is not valid JSON: {reason}") from None


def _invalid(text: str, kind: Any) -> BadRequest:
    """msgspec's `... - at `$.messages[0].role`` as one line in the order of speech."""
    what, _, where = text.partition(" - at `")
    path = where.rstrip("`").removeprefix("$").removeprefix(".")
    if unknown := re.search(r"unknown field `(.+)`", what):
        name = unknown[1][:64]
        near = difflib.get_close_matches(name, kind.__struct_fields__, n=1, cutoff=0.7)
        hint = f"; did you mean {near[0]}?" if near and not path else ""
        return BadRequest(f"{name} is not a parameter of this endpoint{hint}", f"{path}.{name}".lstrip("."))
    if missing := re.search(r"missing required field `(.+)`", what):
        path = f"{path}.{missing[1]}".lstrip(".")
        return BadRequest(f"{path} is missing", path)
    what = what[0].lower() + what[1:].replace("`", "")
    return BadRequest(f"{path or 'the body'}: {what}", path or None)


def sampling(body: SamplingBody) -> dict[str, Value]:
    """The router's inputs for what the body asks for. Raises BadRequest."""
    found: dict[str, Value] = {}
    if body.temperature:  # 0 is greedy, and then nothing else says how to draw.
        found["temperature"] = float(body.temperature)
    if body.temperature != 0:
        if body.top_p is not None:
            found["top_p"] = float(body.top_p)
        if body.top_k is not None and body.top_k > 0:
            found["top_k"] = body.top_k
    for name in ("presence_penalty", "frequency_penalty", "repetition_penalty"):
        value = getattr(body, name)
        if value is not None:
            found[name] = float(value)
    if min_tokens := _min_tokens(body):
        found["min_tokens"] = min_tokens
    for name, given in (("stop_words", body.stop), ("bad_words", body.bad_words)):
        if listed := words(name.removesuffix("_words") if name == "stop_words" else name, given):
            found[name] = listed
    if body.seed is not None:
        found["seed"] = seed_of(body.seed)
    _refuse(body)
    return found


def _min_tokens(body: SamplingBody) -> int:
    """With ignore_eos as many as there may be: so many tokens must come before an engine may end by itself."""
    if not body.ignore_eos:
        return body.min_tokens or 0
    if body.limit is None:
        raise BadRequest("ignore_eos goes with max_tokens: nothing else would end the answer", "ignore_eos")
    return body.limit


def seed_of(seed: int) -> int:
    if not 0 <= seed <= MAX_UINT64:
        raise BadRequest(f"seed is {seed}; it must be 0 to 2**64-1", "seed")
    return seed


def words(name: str, given: str | list[str] | None) -> tuple[str, ...]:
    """Those that aren't empty. Raises BadRequest for too many or too long ones."""
    found = tuple(word for word in ([given] if isinstance(given, str) else given or ()) if word)
    if len(found) > MAX_STOPS or any(len(word) > MAX_USER_CHARACTERS for word in found):
        raise BadRequest(f"{name} holds at most {MAX_STOPS} strings of {MAX_USER_CHARACTERS} characters", name)
    return found


def _refuse(body: SamplingBody) -> None:
    if body.logit_bias:
        raise BadRequest("logit_bias is not supported: the tokens differ from tier to tier", "logit_bias")
    if body.stream_options is not None and not body.stream:
        raise BadRequest("stream_options goes with stream only", "stream_options")


def user_of(body: SamplingBody) -> str:
    """Whom the application says it asks for. Raises BadRequest."""
    for name in ("safety_identifier", "user"):
        user: str | None = getattr(body, name)
        if user is not None:
            if len(user) > MAX_USER_CHARACTERS or "\0" in user:
                raise BadRequest(f"{name} must have at most {MAX_USER_CHARACTERS} characters", name)
            return user
    return ""


def priority_of(service_tier: str | None, highest: int) -> int:
    """1, 2 or 3 of the router's queue; never above what the key allows."""
    wanted = {"priority": 1, "default": 2, "flex": 3}.get(service_tier or "auto", highest)
    return max(wanted, highest)
