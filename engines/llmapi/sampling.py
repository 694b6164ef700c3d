"""A Generation as the LLM API's SamplingParams, and what came back as a Produced."""

from __future__ import annotations

from typing import Any

from bls.errors import BadRequest, EngineFailed, RouterError
from engines.llmapi.settings import TRTLLM_SAMPLER, LlmApiParameters
from engines.worker.generation import Generation, Guide, Sampling
from engines.worker.pipeline import Produced

_ENDS = {None: "", "stop": "end_id", "length": "length"}
_GUIDES = {"json_schema": "json", "regex": "regex", "ebnf_grammar": "grammar"}
_PENALTIES = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}


def sampling_params(llmapi: Any, generation: Generation, settings: LlmApiParameters) -> Any:
    """Raises BadRequest for what the LLM API can't do."""
    end_id, *other_end_ids = sorted(generation.end_ids)
    if generation.min_tokens and other_end_ids:
        raise BadRequest(
            f"min_tokens is {generation.min_tokens}; this engine can only hold back one end id, and the model has "
            f"{len(generation.end_ids)}: give end_id too"
        )
    single_words = [word[0] for word in generation.stop_words if len(word) == 1]
    return llmapi.SamplingParams(
        # Given, or a tokenizer would be needed.
        end_id=end_id,
        pad_id=end_id,
        max_tokens=generation.max_tokens,
        min_tokens=generation.min_tokens or None,
        # Longer stop words are found by the scheduler, which then cancels the request; these end it one step earlier.
        stop_token_ids=[*other_end_ids, *single_words] or None,
        include_stop_str_in_output=True,  # A stop word is kept; an end id is taken away in `read_step`.
        logprobs=1 if generation.log_probs else None,
        guided_decoding=_guided(llmapi, generation.guide, settings),
        detokenize=False,
        **_sampling(generation.sampling),
        **_penalties(generation.sampling, settings),
    )


def _sampling(sampling: Sampling) -> dict[str, Any]:
    if sampling.is_greedy:
        return {"top_k": 1}
    return {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
    }


def _penalties(sampling: Sampling, settings: LlmApiParameters) -> dict[str, float]:
    given = {name: getattr(sampling, name) for name in _PENALTIES}
    given = {name: value for name, value in given.items() if value != _PENALTIES[name]}
    for name, value in given.items():
        if settings.sampler_type != TRTLLM_SAMPLER:
            raise BadRequest(
                f"{name} is {value:g}; this engine supports {_PENALTIES[name]:g} only (sampler_type "
                f"{settings.sampler_type} in its config.pbtxt)"
            )
    return given


def _guided(llmapi: Any, guide: Guide | None, settings: LlmApiParameters) -> Any:
    if guide is None:
        return None
    if settings.guided_decoding is None:
        raise BadRequest(
            f"guided_decoding_guide_type is {guide.kind!r}; this engine has no guided_decoding_backend (config.pbtxt)"
        )
    if guide.kind == "json":
        return llmapi.GuidedDecodingParams(json_object=True)
    return llmapi.GuidedDecodingParams(**{_GUIDES[guide.kind]: guide.text})


def read_step(key: int, generation: Generation, completion: Any) -> Produced:
    """What the last step added to a CompletionOutput: to be read before the next step, which changes the object."""
    ids = list(completion.token_ids_diff)
    ended = _ENDS.get(completion.finish_reason, "")
    error: RouterError | None = None
    if completion.finish_reason not in _ENDS:
        error = EngineFailed(f"the engine ended the request ({completion.finish_reason})")
    if ended and ids and ids[-1] in generation.end_ids:
        ids.pop()
        ended = "end_id"
    log_probs: tuple[float, ...] = ()
    if generation.log_probs:
        pairs = zip(ids, completion.logprobs_diff, strict=False)  # An end id that was taken away still has one.
        log_probs = tuple(_log_prob(token, entry) for token, entry in pairs)
    return Produced(key, tuple(ids), log_probs, ended, error)


def _log_prob(token: int, entry: Any) -> float:
    """Of an entry of `logprobs`, which is a number, or the likeliest ids with the one that was taken among them."""
    return float(entry[token].logprob) if isinstance(entry, dict) else float(entry)
