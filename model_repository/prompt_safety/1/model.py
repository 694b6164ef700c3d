"""Prompts through the policy's checks. See bls/prompt_gate.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bls import triton_io
from bls.contract import PROMPT_SAFETY_CONTRACT
from bls.prompt_gate import PromptGate
from bls.routing.service import PolicyService
from bls.safety.classifier import classifier
from bls.safety.judge import PromptSafety
from bls.words.table import words_beside


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        triton_io.log_to_triton()
        repository = triton_io.repository(args)
        metrics = triton_io.Metrics()
        self.policy = PolicyService(repository, triton_io.parameters(args).get("policy_file", ""), metrics)
        safety = PromptSafety(words_beside(repository), classifier(triton_io.Models()))
        safety.warm_up()
        self.gate = PromptGate(safety, lambda: self.policy.routing.policy.settings.safety, metrics)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return triton_io.answer_each(requests, PROMPT_SAFETY_CONTRACT, self.gate.answer)

    def finalize(self) -> None:
        self.policy.close()
