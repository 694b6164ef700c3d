"""Plans the memory of the GPUs: what the engines take, what is left for their KV caches, and the settings that say so.

python -m scripts.plan --gpu L40S                                     the models of engines/specs.toml on one GPU
python -m scripts.plan --gpu 2xH100-80GB --large model=Llama-3.1-70B tp_size=2 quantisation=fp8 --small none
python -m scripts.plan --gpu 24 --large input=2000 output=500 concurrent=16     requests of other lengths, 16 at once
python -m scripts.plan --gpu H200 --llama-7b instances=2              with llama_7b_tensorrt_llm, which loads two more
python -m scripts.plan --gpu L40S --check                             do the settings in model_repository/ fit?

After --small and --large stand keys of their tensorrt_llm tables in specs.toml; `model` may be a folder with a
config.json. After these and --llama-7b, which loads the large engine, also: input, output (tokens of a request),
concurrent (requests), instances, gpus (0,1;2,3: two instances of two GPUs). Without --gpu nvidia-smi is asked. Nothing
is loaded: this is arithmetic, with 20 % of each GPU left free.

Exit status: 0 it fits; 1 it doesn't, and what would; 2 it could not be tried, 130 stopped.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from bls.contract import LARGE, LLAMA_7B
from bls.paths import MODEL_REPOSITORY
from bls.tiers import engine_models, tier_of
from engines import nvidia_smi, specs
from engines.gpu_memory import known, placement_keys
from engines.gpu_memory.placement import BadPlacement, EnginePlacement, Gpu
from engines.gpu_memory.placement_keys import Keys
from engines.gpu_memory.plan import HEAD_ROOM, Case, DoesNotFit, plan
from engines.gpu_memory.sizes import GIB, RUNTIMES
from engines.tensorrt_llm.spec import GpuSpec
from scripts.host.printing import print_all
from scripts.plan import check
from scripts.plan import report as plan_report

TIERS = {**{model: tier_of(model) for model in engine_models()}, LLAMA_7B: tier_of(LARGE)}
FLAGS = {**{model: f"--{tier_of(model)}" for model in engine_models()}, LLAMA_7B: "--llama-7b"}
ALL_KEYS = (*placement_keys.SPEC_KEYS, *placement_keys.PLACEMENT_KEYS)
NONE = ["none"]
Specs = Mapping[str, GpuSpec | None]  # by tier


def main(arguments: Sequence[str] | None = None, repository: Path = MODEL_REPOSITORY) -> int:
    options = _parser().parse_args(arguments)
    try:
        gpus = _gpus(options.gpu)
        known_specs = {tier: spec.tensorrt_llm for tier, spec in specs.load(options.specs).items()}
        placements = tuple(_placements(options, known_specs, len(gpus), repository))
        reserved = options.reserve + check.classifier_bytes(repository)
        case = Case(tuple(gpus), placements, options.head_room, reserved)
        report = _checked(case, repository) if options.check else _planned(case, known_specs)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print_all(json.dumps(report) if options.json else plan_report.for_people(report, FLAGS))
    return 0 if report["fits"] else 1


def _planned(case: Case, known_specs: Specs) -> plan_report.Report:
    try:
        return plan_report.of_plan(plan(case), known_specs)
    except DoesNotFit as shortage:
        return plan_report.of_shortage(case, shortage)


def _checked(case: Case, repository: Path) -> plan_report.Report:
    return check.check(case, {placement.model: check.settings(repository, placement) for placement in case.placements})


def _placements(options: argparse.Namespace, known_specs: Specs, gpus: int, repository: Path) -> list[EnginePlacement]:
    loaded = dict(known_specs)
    found = []
    for model, flag in FLAGS.items():
        texts = getattr(options, flag.removeprefix("--").replace("-", "_"))
        if texts == NONE:
            continue
        tier = TIERS[model]
        try:
            keys = placement_keys.parsed(texts, placement_keys.PLACEMENT_KEYS if model == LLAMA_7B else ALL_KEYS)
            if options.check:
                keys = _over(check.keys(repository, model, options.runtime), keys)
            spec = loaded[tier] = placement_keys.spec_of(keys, loaded[tier])
            found.append(
                placement_keys.placement(model, tier, spec, known.model(spec.model), options.runtime, gpus, keys)
            )
        except ValueError as error:
            raise BadPlacement(f"{flag}: {error}") from None
    if not found:
        raise BadPlacement("all models are left out, so there is nothing to plan")
    return found


def _over(config: Keys, typed: Keys) -> dict[str, int | str]:
    """What is typed holds over what the config says; where instances or GPUs are typed, over both."""
    placed = {"instances", "gpus"}
    return {key: config[key] for key in config if not (key in placed and placed & typed.keys())} | dict(typed)


def _gpus(text: str | None) -> list[Gpu]:
    if text is None:
        return _found()
    count = re.match(r"([1-9]\d{0,2})x", text)
    return [known.gpu(text[count.end() :] if count else text)] * (int(count[1]) if count else 1)


def _found() -> list[Gpu]:
    """This machine's GPUs, with about 1 % more memory than CUDA reports."""
    try:
        rows = nvidia_smi.query("name", "memory.total", "compute_cap")
        found = [Gpu(name, int(mib) * 2**20, _capability(capability)) for name, mib, capability in rows]
    except (OSError, subprocess.SubprocessError, ValueError):
        found = []
    if not found:
        names = ", ".join(known.COMMON)
        raise ValueError(f"nvidia-smi shows no GPU here: name one with --gpu, such as {names}, or its GiB")
    return found


def _capability(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def _share(text: str) -> Fraction:
    if not re.fullmatch(r"0\.\d{1,4}", text) or not Fraction(1, 20) <= Fraction(text) <= Fraction(9, 10):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number from 0.05 to 0.9")
    return Fraction(text)


def _bytes(text: str) -> int:
    if not re.fullmatch(r"\d{1,4}(\.\d+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of GiB")
    return int(float(text) * GIB)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.plan", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--gpu",
        metavar="[Nx]NAME|GIB",
        help="such as L40S, 2xH100-80GB or 2x79.1 (GiB, with FP8); default: this machine's GPUs",
    )
    for model, flag in FLAGS.items():
        default: list[str] = NONE if model == LLAMA_7B else []
        parser.add_argument(
            flag, nargs="*", default=default, metavar="KEY=VALUE", help=f"{model}; 'none' leaves it out"
        )
    parser.add_argument(
        "--for", dest="runtime", choices=RUNTIMES, default=RUNTIMES[0], help="the builder, as for build_engines"
    )
    parser.add_argument(
        "--head-room",
        type=_share,
        default=HEAD_ROOM,
        metavar="SHARE",
        help="share of each GPU's memory to keep free (default: 0.2)",
    )
    parser.add_argument(
        "--reserve", type=_bytes, default=0, metavar="GIB", help="memory of each GPU that other processes take"
    )
    parser.add_argument(
        "--specs", type=Path, default=specs.FILE, metavar="FILE", help="the specs (default: engines/specs.toml)"
    )
    parser.add_argument(
        "--check", action="store_true", help="validate the settings in model_repository/, in each order of loading"
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
