"""Where this repository lies. Everything that needs a path of it begins here, so that files may move."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL_REPOSITORY = ROOT / "model_repository"
WORDS = ROOT / "words"
