"""engine.json of engines/built/classifier: what the text models need to know of the classifier without opening it.

Written by engines/classifier/build.py, read by `text_tokenizer` and `text_classifier_onnx`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bls.manifest import FILE_NAME, BadManifest

CLASSIFIER = "classifier"


@dataclass(frozen=True)
class TextManifest:
    """One built classifier, which reads a text in windows, `max_windows` at most.

    `max_tokens` of each window count what all begin and end with: `begin_ids` and `end_id`. `unknown_id` stands for
    what has no token.
    """

    folder: Path
    name: str
    model: str
    tokenizer: str
    max_tokens: int
    max_windows: int
    begin_ids: tuple[int, ...]
    end_id: int
    vocab_size: int
    unknown_id: int
    pad_id: int
    width: int
    labels: tuple[str, ...]

    @property
    def model_path(self) -> Path:
        return self.folder / self.model

    @property
    def tokenizer_path(self) -> Path:
        return self.folder / self.tokenizer

    def save(self) -> None:
        fields = asdict(self)
        del fields["folder"]
        (self.folder / FILE_NAME).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


def is_built(folder: Path) -> bool:
    """Whether there is a classifier of today's form in `folder`."""
    try:
        load(folder)
    except BadManifest:
        return False
    return True


def load(folder: Path) -> TextManifest:
    """Reads folder/engine.json. Raises BadManifest."""
    file = folder / FILE_NAME
    try:
        fields: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        fields |= {name: tuple(fields[name]) for name in ("labels", "begin_ids")}
        return TextManifest(folder=folder, **fields)
    except FileNotFoundError:
        raise BadManifest(f"{file} is missing: run `python -m scripts.build_engines {folder.name}`") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadManifest(f"{file}: {error}") from None
