"""Makes engines/built/<tier> of a source: the model's files, engine.json, the tokenizer's byte table.

A folder appears whole or not at all, and replaces another one whole. What was built of the same source is left alone.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from bls import manifest
from bls.tokens import byte_table_build
from engines.builders import model_files
from engines.builders.sources import BadSource, Say, Source, link_all
from engines.specs import Spec

RECORD = "source.json"


@dataclass(frozen=True)
class Record:
    """What a folder was built of: written beside engine.json."""

    source: str
    state: str
    context_tokens: int | None


def build(built: Path, tier: str, spec: Spec, say: Say, force: bool = False) -> manifest.Manifest:
    """Builds `built`/`tier` unless it is there already. Raises BadSource."""
    source = Source.parse(spec.source)
    record = Record(source.text, source.state(), spec.context_tokens)
    if not force and _read_record(built / tier) == record:
        say("is up to date")
        return manifest.load(built / tier)
    built.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{tier}.", dir=built))
    try:
        _fill(draft, built, record, source, say, force)
        draft.chmod(0o755)
        replace_folder(draft, built / tier)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return manifest.load(built / tier)


def _fill(draft: Path, built: Path, record: Record, source: Source, say: Say, force: bool) -> None:
    twin = None if force else _twin(built, record)
    if twin is not None:
        say(f"sharing the files of {twin.name}")
        link_all([file for file in twin.iterdir() if file.name not in (manifest.FILE_NAME, RECORD)], draft)
    else:
        source.bring(draft, say)
    say("reading the model's head")
    described = model_files.describe(draft, record.context_tokens, source.name)
    described.save()
    say("building the tokenizer's byte table")
    byte_table_build.ensure(described)
    (draft / RECORD).write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")


def _twin(built: Path, record: Record) -> Path | None:
    """A folder of another tier with the same model."""
    for file in sorted(built.glob(f"*/{RECORD}")):
        other = _read_record(file.parent)
        if other is not None and (other.source, other.state) == (record.source, record.state):
            return file.parent
    return None


def _read_record(folder: Path) -> Record | None:
    """None also for a folder that is damaged, so that it is built anew."""
    try:
        record = Record(**json.loads((folder / RECORD).read_text(encoding="utf-8")))
        return record if manifest.load(folder).weights_path.exists() else None
    except (OSError, ValueError, TypeError):
        return None


def replace_folder(draft: Path, folder: Path) -> None:
    """Puts `draft` in the place of `folder`, in two renames: a running engine keeps the files that it has open."""
    old = draft.with_name(draft.name + ".old")
    if folder.exists():
        os.rename(folder, old)
    os.rename(draft, folder)
    shutil.rmtree(old, ignore_errors=True)


__all__ = ["BadSource", "build", "replace_folder"]
