"""The part of scripts/serve that is for GPUs: its options, and what is looked at before a server is started there."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts.host import shared_memory
from scripts.host.preflight import Refused
from scripts.host.progress import Progress
from scripts.server import gpu_devices, gpu_launch, served_engines
from scripts.server.generation import MakeServer, MakeStart
from scripts.server.gpu_image import TRITONSERVER, Image
from scripts.server.gpu_launch import CONFIG_NAMES, LLMAPI, TENSORRT_LLM, Mode
from scripts.server.mpi_server import MpiServer
from scripts.server.served_engines import Engine
from scripts.server.tritonserver import Settings, TritonServer

_OWN = ("engine", "world_size", "multi_model", "disable_spawn_processes", "oversubscribe", "tritonserver")


def add_to(parser: argparse.ArgumentParser) -> None:
    """The options of `serve gpu`; None where one is not given."""
    group = parser.add_argument_group("serve gpu")
    group.add_argument(
        "--engine", choices=(TENSORRT_LLM, LLMAPI), help="serve built engines (default), or use the LLM API"
    )
    group.add_argument(
        "--world-size", type=int, metavar="N", help="number of GPUs that one engine is spread over by MPI (default: 1)"
    )
    group.add_argument(
        "--multi-model",
        action="store_true",
        default=None,
        help="serve engines of any size in one server, which spawns workers",
    )
    group.add_argument(
        "--disable-spawn-processes",
        action="store_true",
        default=None,
        help="with --multi-model: the workers are ranks 1 to N-1 of --world-size, assigned by participant_ids",
    )
    group.add_argument(
        "--oversubscribe", action="store_true", default=None, help="allow more ranks than mpirun has slots"
    )
    group.add_argument("--tritonserver", type=Path, metavar="FILE", help=str(TRITONSERVER))


def check_target(options: argparse.Namespace) -> None:
    """Refuses an option of `serve gpu` for another target."""
    given = [name for name in _OWN if getattr(options, name) is not None]
    if given and options.target != "gpu":
        raise Refused(f"--{given[0].replace('_', '-')} is for serve gpu")


def config_name(options: argparse.Namespace) -> str:
    """Which variant of the models' configs is served."""
    return CONFIG_NAMES[options.engine or TENSORRT_LLM]


def prepare(
    options: argparse.Namespace, settings: Settings, check: Callable[[Settings], None], progress: Progress
) -> tuple[MakeStart, MakeServer]:
    """How a server is started, and what watches it. `check` looks at ports and memory; Refused and SetupFailed."""
    mode = Mode(
        engine=options.engine or TENSORRT_LLM,
        world_size=1 if options.world_size is None else options.world_size,
        multi_model=bool(options.multi_model),
        spawns=not options.disable_spawn_processes,
        oversubscribe=bool(options.oversubscribe),
    )
    image = Image((options.tritonserver or TRITONSERVER).absolute())
    engines = _engines(settings, mode)
    shared_memory.remove_stale()
    gpus = mode.world_size
    try:
        gpus = _gpus_found(mode, image, settings, engines)
        check(settings)
    except Refused as reason:
        if not options.dry_run:
            raise
        progress.say(f"without --dry-run: {reason}")
    if not options.dry_run:
        image.compile_words(progress)
    gpu_launch.start(settings, image, mode, engines, gpus)  # refuses
    make_server = MpiServer if mode.uses_mpi else TritonServer
    return (lambda each: gpu_launch.start(each, image, mode, engines, gpus)), make_server


def _gpus_found(mode: Mode, image: Image, settings: Settings, engines: Sequence[Engine]) -> int:
    """How many GPUs there are; all that GPUs, programs and engines must be is looked at."""
    gpus = gpu_devices.visible()
    gpu_devices.check(gpus, 1)
    image.check(settings.repository, settings.models, settings.config_name, mode.programs)
    mode.check(engines)
    gpu_devices.check(gpus, mode.gpus_needed(engines))
    return gpus


def _engines(settings: Settings, mode: Mode) -> list[Engine]:
    if mode.engine == LLMAPI:
        return served_engines.find_llmapi(settings.repository, settings.models, CONFIG_NAMES[LLMAPI])
    return served_engines.find(settings.repository, settings.models)
