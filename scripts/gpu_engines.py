"""What scripts/build_engines does for GPUs: builds with progress, prints the commands, explains older commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bls.manifest import Manifest
from engines.builders.huggingface import Model
from engines.builders.sources import Unreachable
from engines.specs import BadSpec, Spec
from engines.tensorrt_llm import build, flags, old_commands
from engines.tensorrt_llm.build import Plan
from engines.tensorrt_llm.commands import Command
from engines.tensorrt_llm.model_config import family_by_name
from engines.tensorrt_llm.spec import GpuSpec
from scripts.host.progress import PLAIN_INTERVAL_S, Progress
from scripts.host.step import StepFailed, run_step

BUILDERS = (build.ENGINE, build.LLMAPI)
_PREFIX = re.compile(r"^(\[[^\]]*\]\s*)+")  # of TensorRT-LLM's log: [11/30/2026-03:40:00] [TRT-LLM] [I]
_ERROR = re.compile(r"\w*(Error|Exception)\b.*:|error:")
_HERE = """Here `python -m scripts.build_engines small|large --for tensorrt_llm` runs such commands;
engines/specs.toml holds the model, tp_size, precision and sizes."""
_OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemory", re.IGNORECASE)


class CommandFailed(Exception):
    """A program of the build failed; the message is one line with its name, exit status, reason and log."""


def spec_of(tier: str, spec: Spec, source: str | None) -> GpuSpec:
    """The tier's sub-table for GPUs, of the model `source` if there is one. Raises BadSpec."""
    if spec.tensorrt_llm is None:
        raise BadSpec(f"specs.toml: [{tier}.tensorrt_llm] is missing; it says what the tier serves on GPUs")
    return replace(spec.tensorrt_llm, model=source) if source else spec.tensorrt_llm


def build_tier(plan: Plan, progress: Progress, force: bool) -> Manifest:
    """Builds the tier with progress. Raises what engines/tensorrt_llm/build.py does, and CommandFailed."""
    return build.build(plan, _runner(plan, progress), progress.status, force)


def _runner(plan: Plan, progress: Progress) -> Callable[[Command], None]:
    def run(command: Command) -> None:
        progress.status(f"{command.name} has started")
        try:
            # In a folder that can be written: some of these programs leave files where they are started.
            run_step(command.words, os.environ, plan.work, plan.log, progress, _latest(command))
        except StepFailed as failed:
            if command.program == flags.BUILD:
                progress.say(f"its checkpoint is kept for the next build in {plan.work}")
            raise CommandFailed(_reason(command, failed, plan.log)) from None
        except OSError as error:
            raise CommandFailed(f"{command.start[0]} can't be started: {error.strerror}") from None

    return run


def _latest(command: Command) -> Callable[[str], str | None]:
    """Shows what the program last said, now and then: it prints thousands of lines, and the log has them all."""
    shown_at = -PLAIN_INTERVAL_S

    def status(line: str) -> str | None:
        nonlocal shown_at
        said, now = _PREFIX.sub("", line).strip(), time.monotonic()
        if not said or now - shown_at < PLAIN_INTERVAL_S:
            return None
        shown_at = now
        return f"{command.name}: {said[:100]}"

    return status


def _reason(command: Command, failed: StepFailed, log: Path) -> str:
    lines = [said for line in failed.lines if (said := _PREFIX.sub("", line).strip())]
    last = next((line for line in reversed(lines) if _ERROR.search(line)), lines[-1] if lines else "without any output")
    ended = f"ended with exit status {failed.status}" if failed.status > 0 else f"was ended by signal {-failed.status}"
    hint = ""
    if failed.status == -9 or any(_OUT_OF_MEMORY.search(line) for line in lines):
        hint = "; it ran out of memory: lower max_num_tokens or workers, or raise tp_size, in engines/specs.toml"
    return f"{command.name} {ended}: {last}{hint} (the full output is in {os.path.relpath(log)})"


def dry_run(plan: Plan, progress: Progress, source: str | None) -> str:
    """The commands of a build, to be pasted into a shell; the last one makes the tier of the engine. Raises BadSource,
    BadCommand."""
    if plan.builder == build.LLMAPI:
        return _dry_run_without_engine(plan, source)
    model, guess = Model.parse(plan.spec.model), ""
    try:
        steps = build.planned(plan, progress.say)
    except Unreachable:
        family = family_by_name(model.name)
        guess = (
            f"# The hub can't be reached, so that this is a model of the family {family} is only a guess "
            "from its name.\n"
        )
        steps = build.commands_for(plan, model, family)
    last = ["python3", "-m", "scripts.build_engines", plan.tier, "--for", plan.builder]
    last += [*(["--from", source] if source else []), "--engine", str(plan.work / "engine")]
    parts = [f"# {plan.tier}: {model.name}, TensorRT-LLM 1.1 or 1.2\n{guess}mkdir -p {shlex.quote(str(plan.work))}"]
    if model.repository:
        bring = f'snapshot_download("{model.repository}", local_dir={json.dumps(str(plan.work / "model"))})'
        parts.append(shlex.join(["python3", "-c", f"from huggingface_hub import snapshot_download; {bring}"]))
    return "\n".join([*parts, *(step.text() for step in steps), shlex.join(last)])


def _dry_run_without_engine(plan: Plan, source: str | None) -> str:
    """The LLM API loads the model itself; only its tokenizer is brought beforehand."""
    model = Model.parse(plan.spec.model)
    command = ["python3", "-m", "scripts.build_engines", plan.tier, "--for", plan.builder]
    where = "downloads" if model.repository else "reads"
    config = f"model_repository/tensorrt_llm_{plan.tier}/configs/llmapi.pbtxt"
    return "\n".join(
        [
            f"# {plan.tier}: {model.name}; no engine is built: the LLM API {where} the weights when the server starts.",
            f"# Parallelism, batch and KV cache are set in {config}; quantisation is the checkpoint's own.",
            shlex.join([*command, *(["--from", source] if source else [])]),
            "scripts/serve gpu --engine llmapi",
        ]
    )


def explain(text: str) -> tuple[str, bool]:
    """What became of each flag of older commands, with today's; and whether all flags are known. Raises BadCommand."""
    found = old_commands.read(text)
    if not found.explanations and not any(other.is_wrong for other in found.others):
        old_commands.explain(text)  # which says that there is none
    parts = [*(_explained(each) for each in found.explanations), *_not_explained(found.others), _HERE]
    wrong = [
        *(each.has_wrong or each.strange for each in found.explanations),
        *(each.is_wrong for each in found.others),
    ]
    return "\n\n".join(parts), not any(wrong)


def _not_explained(others: Sequence[old_commands.Other]) -> list[str]:
    """Nothing of a paste is dropped in silence."""
    lines = []
    for other in others:
        lines += [f"  {other.text}", *(_wrapped(other.why) if other.why else [])]
    return ["\n".join(["Not explained:", *lines])] if lines else []


def _explained(explanation: old_commands.Explanation) -> str:
    lines = [f"{explanation.program}:", *([f"  behind {explanation.before}"] if explanation.before else [])]
    kept = [fate.flag for fate in explanation.fates if not fate.gone and not fate.is_wrong]
    for fate in explanation.fates:
        if fate.is_wrong:
            lines += [f"  {fate.flag}", *_wrapped(f"left out: {fate.text}")]
        elif fate.gone:
            lines += [f"  {fate.flag}", *_wrapped(f"{_since(fate.gone)}; {fate.text}")]
    lines += ["  as before", *_wrapped(", ".join(kept))] if kept else []
    if explanation.strange:
        known = "only llama's and qwen's conversions are known here; TensorRT-LLM's others are in /app/examples/models"
        lines += ["", f"This is a model of the family {explanation.strange}: {known}."]
    if explanation.commands:
        lines += ["", "Today, in TensorRT-LLM 1.1 and 1.2:", *(command.text() for command in explanation.commands)]
    if any(old_commands.MODEL_DIR in command.arguments for command in explanation.commands):
        lines.append(f"# {old_commands.MODEL_DIR}: the folder of the Hugging Face model")
    if explanation.family_is_guess:
        lines.append(
            "# This uses llama's script, which also reads Mistral and Mixtral, because no name here reveals the "
            "model's family."
        )
    return "\n".join(lines)


def _since(gone: str) -> str:
    if gone.startswith(("deprecated", "changed", "never")):
        return gone
    return f"gone {gone}" if gone.startswith("by ") else f"gone since {gone}"


def _wrapped(text: str) -> list[str]:
    width = max(60, min(shutil.get_terminal_size().columns, 120))
    return textwrap.wrap(text, width, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False)
