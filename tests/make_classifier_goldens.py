"""Writes tests/data/classifier_goldens.json: what sentence-transformers makes of some texts, to hold our model to.

    pip install sentence-transformers    (in an environment of its own: it brings torch)
    python -m tests.make_classifier_goldens FOLDER

FOLDER is the folder `model` of the wheel that engines/specs.toml names for the classifier.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TEXTS = (
    "Hello world",
    "What is the capital of France?",
    "Write a Python function that reverses a linked list, and explain its complexity in two sentences.",
    "",
    "NAÏVE café – “quotes”, 3.14 & emoji 🙂!",
    "你好，今天天气怎么样？",
    "word " * 253 + "end",  # exactly 256 tokens
    "The quick brown fox jumps over the lazy dog. " * 60,  # longer than the model reads
)

if __name__ == "__main__":
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(sys.argv[1], device="cpu")
    embeddings = model.encode(list(TEXTS), batch_size=1, normalize_embeddings=True)
    goldens = [
        {"text": text, "embedding": [round(float(value), 6) for value in embedding]}
        for text, embedding in zip(TEXTS, embeddings, strict=True)
    ]
    lines = ",\n".join(json.dumps(golden, ensure_ascii=False) for golden in goldens)
    (Path(__file__).parent / "data" / "classifier_goldens.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
