"""Makes engines/built/<tier> for GPUs of a Hugging Face model: TensorRT-LLM's engine, or the model for its LLM API.

    tensorrt_llm/                   the engine, one file a rank; config.pbtxt's gpt_model_path
    model/                          for the LLM API instead: the model as it is
    tokenizer/                      the tokenizer, config.json, generation_config.json; config.pbtxt's tokenizer_dir
    engine.json, token_bytes.bin    what `preprocessing` and the router read
    xgrammar_tokenizer_info.json    for guided decoding

As in engines/builders/build.py a folder appears whole or not at all. What is being made lies in .<tier>.work beside
it: there a checkpoint is kept whose engine couldn't be built, since calibrating a large model takes an hour.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bls import manifest
from bls.tokens import byte_table_build, tokenizer_files
from engines.builders.build import RECORD, replace_folder
from engines.builders.huggingface import Model
from engines.builders.model_files import describe_huggingface
from engines.builders.sources import BadSource, Say, link_all
from engines.tensorrt_llm import commands, machine, outputs, tokenizer_info
from engines.tensorrt_llm.commands import Command, Run
from engines.tensorrt_llm.machine import Machine
from engines.tensorrt_llm.model_config import ModelConfig
from engines.tensorrt_llm.spec import GpuSpec

ENGINE, LLMAPI = "tensorrt_llm", "llmapi"
_WEIGHTS = {ENGINE: "tensorrt_llm", LLMAPI: "model"}
_TOKENIZER = "tokenizer"


@dataclass(frozen=True)
class Plan:
    """What is to be built: `builder` is ENGINE or LLMAPI; `examples` is where TensorRT-LLM's scripts lie; `engine` is
    one that is there already, or None."""

    built: Path
    tier: str
    spec: GpuSpec
    builder: str = ENGINE
    examples: Path = commands.EXAMPLES
    engine: Path | None = None

    @property
    def work(self) -> Path:
        return self.built / f".{self.tier}.work"

    @property
    def log(self) -> Path:
        """What the programs print; it goes with the engine in the end."""
        return self.work / "build.log"


@dataclass(frozen=True)
class Record:
    """What a folder was built of: written beside engine.json."""

    builder: str
    model: str
    state: str
    spec: dict[str, Any]
    machine: Machine


def planned(plan: Plan, say: Say) -> list[Command]:
    """The commands of `plan`, checked against the model and the table of flags; of the hub's model only config.json is
    brought. Raises BadSource, BadCommand."""
    model = Model.parse(plan.spec.model)
    config = ModelConfig.of(model.name, model.config(say))
    config.check(plan.spec)
    return commands_for(plan, model, config.family)


def commands_for(plan: Plan, model: Model, family: str) -> list[Command]:
    """What makes the checkpoint, then the engine, of a model of `family`. Raises BadCommand."""
    spec, work = plan.spec, plan.work
    source = work / "model" if model.repository else Path(model.text)
    steps = [
        commands.of_checkpoint(spec, family, source, work / "checkpoint", plan.examples),
        commands.of_engine(spec, work / "checkpoint", work / "engine", work / "timing.cache"),
    ]
    for step in steps:
        step.check()
    return steps


def build(plan: Plan, run: Run, say: Say, force: bool = False) -> manifest.Manifest:
    """Builds the tier unless it is up to date. Raises BadSource, BadCommand, BadMachine, and whatever `run` raises."""
    model = Model.parse(plan.spec.model)
    record = Record(plan.builder, model.text, model.state(), asdict(replace(plan.spec, workers=None)), machine.here())
    folder = plan.built / plan.tier
    if not force and plan.engine is None and _is_up_to_date(folder, record):
        say("is up to date")
        return manifest.load(folder)
    plan.built.mkdir(parents=True, exist_ok=True)
    with _alone(plan), tempfile.TemporaryDirectory(prefix=f".{plan.tier}.", dir=plan.built) as parent:
        draft = Path(parent) / plan.tier
        draft.mkdir(mode=0o755)
        if force:
            shutil.rmtree(plan.work, ignore_errors=True)
        _fill(plan, model, draft, run, say)
        (draft / RECORD).write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
        replace_folder(draft, folder)
        shutil.rmtree(plan.work, ignore_errors=True)
    return manifest.load(folder)


def _fill(plan: Plan, model: Model, draft: Path, run: Run, say: Say) -> None:
    """What may fail at once goes first: an engine may take hours."""
    weights = draft / _WEIGHTS[plan.builder]
    if plan.builder == LLMAPI:
        ModelConfig.of(model.name, model.config(say)).check_as_it_is(plan.spec)
        _describe(plan, model, draft, say)
        weights.mkdir()
        model.bring(weights, say)
    elif plan.engine is not None:
        outputs.check_engine(plan.engine, plan.spec)
        outputs.check_model(plan.engine, model.name, model.config(say))
        _describe(plan, model, draft, say)
        weights.mkdir()
        link_all([file for file in plan.engine.iterdir() if file.is_file()], weights)
    else:
        machine.check(plan.spec)
        steps = planned(plan, say)
        machine.check_scripts(steps)
        _describe(plan, model, draft, say)
        _run(plan, model, steps, run, say)
        (plan.work / "engine").rename(weights)
        shutil.copy2(plan.log, draft / plan.log.name)


def _run(plan: Plan, model: Model, steps: list[Command], run: Run, say: Say) -> None:
    """Leaves `work`/engine; the checkpoint too if only the engine failed."""
    convert, build_engine = steps
    plan.work.mkdir(exist_ok=True)
    plan.log.write_bytes(b"")
    checkpoint, stamp = plan.work / "checkpoint", plan.work / "checkpoint.json"
    made_by = json.dumps([model.state(), machine.installed_version(), convert.words])
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == made_by:
        say("using the checkpoint of the last attempt")
    else:
        for name in ("model", "checkpoint"):
            shutil.rmtree(plan.work / name, ignore_errors=True)
        stamp.unlink(missing_ok=True)
        if model.repository:
            (plan.work / "model").mkdir()
            model.bring(plan.work / "model", say)
        outputs.check_disk(plan.spec, plan.work / "model" if model.repository else Path(model.text), plan.work)
        run(convert)
        outputs.check_checkpoint(checkpoint, plan.spec)
        stamp.write_text(made_by, encoding="utf-8")
    shutil.rmtree(plan.work / "engine", ignore_errors=True)
    run(build_engine)
    outputs.check_engine(plan.work / "engine", plan.spec)


def _describe(plan: Plan, model: Model, draft: Path, say: Say) -> None:
    """Writes all that the router and the tokenizer models need."""
    place = draft / _TOKENIZER
    place.mkdir()
    model.bring_tokenizer(place, say)
    fields = {"name": model.name, "builder": plan.builder, "weights": _WEIGHTS[plan.builder]}
    described = describe_huggingface(draft, _TOKENIZER, context_tokens=plan.spec.max_seq_len, **fields)
    described.save()
    say("building the tokenizer's byte table")
    loaded = tokenizer_files.load(described)
    byte_table_build.ensure(described, loaded)
    info = tokenizer_info.info(loaded, described.end_ids)
    (draft / tokenizer_info.FILE_NAME).write_text(json.dumps(info), encoding="utf-8")


def _is_up_to_date(folder: Path, record: Record) -> bool:
    try:
        fields = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        built_on = Machine(**fields.pop("machine"))
        same = Record(machine=record.machine, **fields) == record
        return same and record.machine.suits(built_on) and manifest.load(folder).weights_path.exists()
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False


@contextmanager
def _alone(plan: Plan) -> Iterator[None]:
    """Raises BadSource if the tier is being built already."""
    with (plan.built / f".{plan.tier}.lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadSource(f"another build of {plan.tier} is running") from None
        yield
