"""Prompts that reach an engine through an ensemble, not the router: what the model `prompt_safety` does with each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from bls import request_log
from bls.arrays import Array, read_text
from bls.errors import Refused
from bls.ports import Metrics
from bls.safety.judge import PromptSafety
from bls.safety.settings import MASK, REFUSE, Safety


class PromptGate:
    """Each prompt goes by the checks that are newest when it comes, which `settings` gives."""

    def __init__(self, safety: PromptSafety, settings: Callable[[], Safety], metrics: Metrics) -> None:
        self._safety = safety
        self._settings = settings
        self._metrics = metrics
        request_log.declare_verdicts(metrics)

    def answer(self, inputs: Mapping[str, Array], requested: frozenset[str]) -> dict[str, Array]:
        """`allowed_text`, of the shape of `text`. Raises Refused, with what the router's client would read, for all
        prompts of a batch if it is for one; BadRequest."""
        given = inputs["text"]
        templates = np.broadcast_to(inputs.get("apply_chat_template", np.array(False)), given.shape)
        allowed = np.empty(given.shape, np.object_)
        for place, value in np.ndenumerate(given):
            allowed[place] = self._allowed(read_text(value, "input_text"), bool(templates[place])).encode()
        return {"allowed_text": allowed} if "allowed_text" in requested else {}

    def _allowed(self, text: str, apply_chat_template: bool) -> str:
        verdict = self._safety.judge(self._settings(), text, apply_chat_template=apply_chat_template)
        request_log.count_verdict(self._metrics, verdict.action, verdict.reason, verdict.failed)
        if verdict.action == REFUSE:
            raise Refused(verdict.reply)
        return (verdict.text or "") if verdict.action == MASK else text
