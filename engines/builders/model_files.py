"""What a model's files say of the model: GGUF metadata, or the JSON files that stand beside an OpenVINO model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bls.manifest import BadManifest, Manifest, TokenizerFile
from bls.tokens import gguf, tokenizer_files
from bls.tokens.tokenizer import BadTokenizer
from engines.builders.sources import OPENVINO_MODEL, BadSource

# Other end ids in GGUF metadata, beside eos_token_id: end of turn and end of message.
_MORE_END_IDS = ("tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
# Better than general.name, which is often that of a training run.
_QUANTISATION = re.compile(r"[.-](?:I?Q\d\w*|B?F16|F32)$", re.IGNORECASE)
GGUF_FAMILIES = ("llama", "qwen2", "qwen3")  # as general.architecture says: Mistral's and SmolLM's files are "llama"
_TOKENIZER_FILES = {"huggingface": "tokenizer.json", "sentencepiece": "tokenizer.model"}


def describe(folder: Path, context_tokens: int | None, name: str) -> Manifest:
    """The manifest of the model in `folder`; `context_tokens` caps the model's own. Raises BadSource.

    `name` is the model's where its files don't say one, as those of Transformers 5 don't.
    """
    files = sorted(folder.glob("*.gguf"))
    with _told_as_bad_source():
        fields = _of_gguf(files[0]) if files else _of_openvino(folder, name)
        fields["context_tokens"] = min(fields["context_tokens"], context_tokens or fields["context_tokens"])
        return Manifest(folder=folder, builder="openvino", **fields)


def describe_huggingface(folder: Path, place: str, **fields: Any) -> Manifest:
    """The manifest of a model whose config.json and tokenizer lie in `folder`/`place`; `fields` are the manifest's
    others and go before what is read. Raises BadSource."""
    with _told_as_bad_source():
        return Manifest(folder=folder, **{**_of_huggingface(folder / place, f"{place}/"), **fields})


@contextmanager
def _told_as_bad_source() -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise BadSource(f"the model doesn't specify its {error.args[0]}") from None
    except (gguf.BadGguf, BadManifest, BadTokenizer, OSError, ValueError, TypeError) as error:
        raise BadSource(str(error)) from None


def _of_gguf(file: Path) -> dict[str, Any]:
    metadata = gguf.read_metadata(file)
    architecture = metadata["general.architecture"]
    if architecture not in GGUF_FAMILIES:
        raise BadSource(
            f"{file.name} holds a model of the family {architecture!r}; OpenVINO reads GGUF files of "
            f"{', '.join(GGUF_FAMILIES)} only: take it as an OpenVINO model instead, see docs/models.md"
        )
    end_ids = [metadata["tokenizer.ggml.eos_token_id"], *(metadata[key] for key in _MORE_END_IDS if key in metadata)]
    return {
        "name": _QUANTISATION.sub("", file.stem),
        "weights": file.name,
        "context_tokens": int(metadata[f"{architecture}.context_length"]),
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "end_ids": tuple(dict.fromkeys(end_ids)),
        "pad_id": int(metadata.get("tokenizer.ggml.padding_token_id", end_ids[0])),
        "tokenizer": TokenizerFile("gguf", file.name, tokenizer_files.digest("gguf", file)),
    }


def _of_openvino(folder: Path, name: str) -> dict[str, Any]:
    known = _read_json(folder / "config.json").get("_name_or_path", "").rpartition("/")[2]
    return {"name": known or name, "weights": OPENVINO_MODEL, **_of_huggingface(folder, "")}


def _of_huggingface(folder: Path, prefix: str) -> dict[str, Any]:
    """`prefix` stands before the tokenizer's file in the manifest."""
    config = _read_json(folder / "config.json")
    generation = {**config, **_read_json(folder / "generation_config.json", optional=True)}
    kind, file = _tokenizer_file(folder)
    ends = generation["eos_token_id"]
    # A chat model's config.json may name only the end of its base model; then the tokenizer knows the end of a turn.
    named = [*(ends if isinstance(ends, list) else [ends]), tokenizer_files.load_file(kind, folder / file).eos_id]
    end_ids = tuple(dict.fromkeys(token for token in named if token is not None))
    pad_id = generation.get("pad_token_id")
    return {
        "context_tokens": int(config["max_position_embeddings"]),
        "vocab_size": int(config["vocab_size"]),
        "end_ids": end_ids,
        "pad_id": next(iter(end_ids), 0) if pad_id is None else pad_id,
        "tokenizer": TokenizerFile(kind, prefix + file, tokenizer_files.digest(kind, folder / file)),
    }


def _tokenizer_file(folder: Path) -> tuple[str, str]:
    for kind, name in _TOKENIZER_FILES.items():
        if (folder / name).is_file():
            return kind, name
    raise BadSource(f"the model has no tokenizer: one of {', '.join(_TOKENIZER_FILES.values())} is needed")


def _read_json(file: Path, optional: bool = False) -> Mapping[str, Any]:
    if optional and not file.is_file():
        return {}
    fields: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return fields
