"""Where this repository lies. Everything that needs a path of it begins here, so that files may move."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKED = Path("llm_router", "files")  # in a model repository that scripts/pack made: what else lies beside one
MODEL_REPOSITORY = ROOT.parents[1] if ROOT.parts[-2:] == PACKED.parts else ROOT / "model_repository"
WORDS = ROOT / "words"
WORDS_VARIABLE = "LLM_ROUTER_WORDS"  # names another folder, for whoever keeps it outside of what is served


def home(repository: Path) -> Path:
    """The folder that holds a model repository's words/, engines/built/ and logs/: beside it, or packed into it."""
    packed = repository / PACKED
    return packed if packed.is_dir() else repository.parent
