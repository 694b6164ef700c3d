"""What the text classifier tells apart: classes, in the order of its logits.

An intent says what a prompt wants, a risk what it might do. Each has prompts in engines/classifier/examples and
held_out; docs/classifier.md says how to add one.
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
