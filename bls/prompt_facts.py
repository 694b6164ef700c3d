"""What the policy is told of a request, once its tokens are counted and its prompt is judged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b

from bls.arrays import Tensors
from bls.errors import BadRequest
from bls.request import WHAT_FITS, Request
from bls.routing.decision import Prompt
from bls.routing.policy_file import Policy
from bls.safety.judge import Verdict

_SCRIPT = "script_"  # begins the signal of a script's share


def prompt_of(
    request: Request, policy: Policy, encoded: Mapping[str, Tensors], contexts: Mapping[str, int], verdict: Verdict
) -> Prompt:
    """`encoded` and `contexts` are by engine model; a context that the policy sets counts where it is shorter.

    Raises BadRequest for a request that fits no engine's context, or names a model that there isn't.
    """
    prompt = Prompt(
        tokens={model: tensors["INPUT_ID"].shape[1] for model, tensors in encoded.items()},
        contexts=_shortened(contexts, policy),
        # Who sets no limit doesn't ask for a long answer.
        max_tokens=1 if request.max_tokens == WHAT_FITS else request.max_tokens,
        counted="messages" if request.messages else "chat" if request.apply_chat_template else "text",
        messages=len(json.loads(request.messages)) if request.messages else 0,
        script=_main_script(verdict.signals),
        verdict=verdict.action,
        verdict_reason=verdict.reason,
        signals=verdict.signals,
        tenant=request.tenant,
        user=request.user,
        priority=request.priority,
        wanted=_wanted(request, policy),
        parameters=request.parameters,
        key=request.id or _key(encoded),
    )
    _check_fits(prompt)
    return prompt


def _main_script(signals: Mapping[str, float]) -> str:
    """The script of most of the letters; "" where there are none, or the check is off."""
    shares = {name.removeprefix(_SCRIPT): share for name, share in signals.items() if name.startswith(_SCRIPT)}
    return max(shares, key=lambda name: shares[name], default="")


def _shortened(contexts: Mapping[str, int], policy: Policy) -> dict[str, int]:
    stated = {tier.model: tier.context_tokens for tier in policy.settings.tiers if tier.context_tokens is not None}
    return {model: min(tokens, stated.get(model, tokens)) for model, tokens in contexts.items()}


def _wanted(request: Request, policy: Policy) -> str:
    if not request.wanted:
        return ""
    model = policy.model_named(request.wanted)
    if model is None:
        names = ", ".join(tier.name for tier in policy.settings.tiers)
        raise BadRequest(f"tier is {request.wanted[:40]!r}; it must be one of {names}")
    return model


def _key(encoded: Mapping[str, Tensors]) -> str:
    """The same for the same prompt, where the client gave no id."""
    ids = next(iter(encoded.values()))["INPUT_ID"]
    return blake2b(ids.tobytes(), digest_size=8).hexdigest()


def _check_fits(prompt: Prompt) -> None:
    if any(prompt.fits(model) for model in prompt.tokens):
        return
    model = max(prompt.tokens, key=lambda name: prompt.contexts[name] - prompt.tokens[name])
    tokens, context = prompt.tokens[model], prompt.contexts[model]
    raise BadRequest(
        f"the prompt has {tokens} tokens and max_tokens is {prompt.max_tokens}, together {tokens + prompt.max_tokens}; "
        f"the context of {model} holds {context}"
    )
