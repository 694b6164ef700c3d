"""Which engine answers a prompt, and why. This is the file to edit.

Read `choose` from the top: the first line that holds decides, and its reason goes into the response, the log and the
metrics. Numbers stand here with their unit; what Triton needs (instances, queue) stands in llm_router/config.pbtxt.
"""

from __future__ import annotations

from bls.contract import LARGE, SMALL
from bls.decision import Decision, Prompt

SMALL_MAX_PROMPT_TOKENS = 512  # Beyond it a small model loses the thread.
SMALL_MAX_NEW_TOKENS = 256  # A long answer asks for a plan, which is what the large model is for.

TIMEOUT_SECONDS = 300.0  # For a request that brings no `timeout`: no answer may run for ever.

# Tried when an engine isn't loaded, is full, or fails before its first token.
FALLBACK = {SMALL: LARGE, LARGE: SMALL}


def choose(prompt: Prompt) -> Decision:
    """The engine for a prompt that at least one engine's context holds."""
    if not prompt.fits(SMALL):
        return Decision(LARGE, "over_small_context")
    if not prompt.fits(LARGE):
        return Decision(SMALL, "over_large_context")
    if prompt.tokens[SMALL] > SMALL_MAX_PROMPT_TOKENS:
        return Decision(LARGE, "long_prompt")
    if prompt.max_tokens > SMALL_MAX_NEW_TOKENS:
        return Decision(LARGE, "long_answer")
    return Decision(SMALL, "default")


def fall_back(failed: Decision, prompt: Prompt) -> Decision | None:
    """The engine to try instead, or None where there is none."""
    other = FALLBACK.get(failed.model)
    if other is None or not prompt.fits(other):
        return None
    return Decision(other, "small_unavailable" if failed.model == SMALL else "large_unavailable")
