"""Makes engines/built/classifier: model.onnx with weights.bin, the tokenizer, engine.json, evaluation.json.

The large weights lie in a file of their own, which all processes map and so have in memory once.
The encoder comes from `source`, the head from the example prompts. Where only examples have changed, the encoder that
was built before is kept, so that a new head takes no network. The head of the shipped examples is shipped too.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bls.arrays import Array
from bls.manifest import BadManifest
from bls.safety.classifier import MAX_UNKNOWN_SHARE
from engines.builders.build import replace_folder
from engines.builders.sources import BadSource, Say
from engines.classifier import encoders, evaluation, examples, graph, head, shipped
from engines.classifier import manifest as text_manifest
from engines.classifier.encoders import MODEL
from engines.classifier.evaluation import Evaluation, Judged
from engines.classifier.labels import LABELS
from engines.classifier.manifest import CLASSIFIER, TextManifest
from engines.classifier.session import Classifier
from engines.classifier.tokenizer import TextTokenizer

FORMAT = 4  # raised when model.onnx is made in another way, so that old ones are made anew
WEIGHTS, EVALUATION = "weights.bin", "evaluation.json"
_LARGE_BYTES = 256  # what goes to WEIGHTS: all but shapes, single numbers and the head
_RECORD = "source.json"


@dataclass(frozen=True)
class Prompts:
    """What the head is fitted to, what it is judged by, and what must not be taken for a risk."""

    fitted: Path = examples.FITTED
    held_out: Path = examples.HELD_OUT
    innocent: Path = examples.INNOCENT


@dataclass(frozen=True)
class Record:
    """What the folder was built of: written beside engine.json. `encoder` says which weights, `examples` which head."""

    encoder: str
    examples: str

    @property
    def made_from(self) -> str:
        return f"{self.encoder} {self.examples}"


def build(built: Path, source: str, say: Say, force: bool = False, prompts: Prompts | None = None) -> Evaluation:
    """Builds `built`/classifier unless it is there already. Raises BadSource or BadExamples."""
    folder = built / CLASSIFIER
    prompts = prompts or Prompts()
    record = Record(f"{FORMAT} {source} {encoders.state(source)}", _digest(prompts))
    before = None if force else read_record(folder)
    if before == record:
        say("is up to date")
        return evaluation.load(folder / EVALUATION)
    built.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{CLASSIFIER}.", dir=built))
    try:
        if before is not None and before.encoder == record.encoder and _has_these_classes(folder):
            say("keeping the encoder")
            model = _take_over(folder, draft)
        else:
            model = _make_encoder(draft, source, say)
        found = _shipped(draft, model, record) or _fit(draft, model, prompts, say)
        (draft / _RECORD).write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
        draft.chmod(0o755)
        replace_folder(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return found


def _digest(prompts: Prompts) -> str:
    """Raises BadExamples, so that nothing is built of examples that can't be used."""
    for folder in (prompts.fitted, prompts.held_out):
        examples.load(folder, LABELS)
    examples.prompts(prompts.innocent)
    return f"{' '.join(LABELS)} {examples.digest(prompts.fitted, prompts.held_out, prompts.innocent)}"


def _has_these_classes(folder: Path) -> bool:
    """The encoder's model has their number in it, and its engine.json their names."""
    return text_manifest.load(folder).labels == LABELS


def _take_over(folder: Path, draft: Path) -> onnx.ModelProto:
    for file in folder.iterdir():
        if file.name not in (MODEL, EVALUATION, _RECORD):
            shutil.copy2(file, draft)  # no link: onnx takes a file with two names for an attack
    return onnx.load(folder / MODEL, load_external_data=False)


def _make_encoder(draft: Path, source: str, say: Say) -> onnx.ModelProto:
    """The model with a head of zeros; its weights, the tokenizer and engine.json go to `draft`."""
    with tempfile.TemporaryDirectory(dir=draft) as temporary:
        files = encoders.bring(source, Path(temporary), say)
        say("writing the encoder as ONNX")
        try:
            encoder, manifest = encoders.read(files, draft)
            nothing = graph.Head(np.zeros((encoder.width, len(LABELS))), np.zeros(len(LABELS)), LABELS)
            model = graph.build(encoder, nothing)
            onnx.external_data_helper.convert_model_to_external_data(
                model, location=WEIGHTS, size_threshold=_LARGE_BYTES
            )
            graph.set_head(model, nothing)  # back into the model itself
        except (OSError, ValueError, KeyError, TypeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise BadSource(f"{source} is not an encoder of a known form: {what}") from None
    onnx.save(model, draft / MODEL)
    (draft / WEIGHTS).chmod(0o644)
    manifest.save()
    return model


def _shipped(draft: Path, model: onnx.ModelProto, record: Record) -> Evaluation | None:
    """Where encoder and examples are the shipped ones, so are the head and what it is worth."""
    found = shipped.head(record.made_from)
    if found is None:
        return None
    _write(draft, model, *found)
    shutil.copyfile(shipped.FOLDER / shipped.EVALUATION, draft / EVALUATION)
    return evaluation.load(draft / EVALUATION)


def _fit(draft: Path, model: onnx.ModelProto, prompts: Prompts, say: Say) -> Evaluation:
    """Fits the head, writes model.onnx with it, and judges that very file by the held-out prompts."""
    manifest = text_manifest.load(draft)
    fitted, held_out = (examples.load(folder, LABELS) for folder in (prompts.fitted, prompts.held_out))
    (draft / MODEL).write_bytes(model.SerializeToString())
    known = _readable(manifest, fitted.texts)
    say(f"reading {len(known)} example prompts")
    embeddings = embed(manifest, [fitted.texts[place] for place in known])["embedding"]
    say("fitting the head")
    _write(draft, model, *head.fit(embeddings, np.array(fitted.classes)[known], len(LABELS)))
    say(f"evaluating it on {len(held_out.texts)} others")
    innocent = examples.prompts(prompts.innocent)
    classes = np.array([*held_out.classes, *[-1] * len(innocent)])
    languages = [*held_out.languages, *(language for _, language in innocent)]
    logits = embed(manifest, [*held_out.texts, *(text for text, _ in innocent)])["logits"]
    found = evaluation.judge(Judged(classes, languages, logits), len(known), LABELS)
    found.save(draft / EVALUATION)
    return found


def _readable(manifest: TextManifest, texts: Sequence[str]) -> list[int]:
    """The places of those in a language that the encoder knows: the others would only blur its classes."""
    tokenizer = TextTokenizer(manifest)
    shares = [tokenizer.unknown_share(tokenizer.encode(text)[0]) for text in texts]
    return [place for place, share in enumerate(shares) if share <= MAX_UNKNOWN_SHARE]


def _write(draft: Path, model: onnx.ModelProto, weight: Array, bias: Array) -> None:
    graph.set_head(model, graph.Head(weight, bias, LABELS))
    (draft / MODEL).write_bytes(model.SerializeToString())


def embed(manifest: TextManifest, texts: Sequence[str], threads: int = 2) -> dict[str, Array]:
    """The embeddings and logits of `texts`, one row each."""
    tokenizer = TextTokenizer(manifest)
    rows = [np.array(tokenizer.encode(text)[0], np.int64) for text in texts]
    return Classifier(manifest, threads).run([(row, np.ones_like(row)) for row in rows], ["embedding", "logits"])


def read_record(folder: Path) -> Record | None:
    """None also for a folder that is damaged, so that it is built anew."""
    try:
        fields: dict[str, Any] = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        manifest = text_manifest.load(folder)
        evaluation.load(folder / EVALUATION)
        files = (manifest.model_path, manifest.tokenizer_path, folder / WEIGHTS)
        return Record(**fields) if all(file.is_file() for file in files) else None
    except (OSError, ValueError, TypeError, KeyError, BadManifest):
        return None
