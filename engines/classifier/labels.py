"""What the text classifier tells apart: twenty classes, in the order of its logits.

An intent says what a prompt wants, a risk what it might do. Each has example prompts in engines/classifier/examples;
another name or number needs those and the `labels` of bls/contract.py too.
"""

from __future__ import annotations

INTENTS = (
    "chit_chat",
    "factual_question",
    "advice",
    "code",
    "maths",
    "reasoning",
    "translation",
    "summary",
    "rewriting",
    "creative_writing",
    "data_extraction",
)
RISKS = (
    "prompt_injection",
    "violence",
    "self_harm",
    "sexual",
    "hate",
    "illegal_goods",
    "malware",
    "personal_data",
    "fraud",
)
LABELS = INTENTS + RISKS

# Where a small model's answer is most often wrong.
HARD = ("code", "maths", "reasoning")
