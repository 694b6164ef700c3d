"""How a server on GPUs is started: one process, or the ranks of mpirun.

one GPU            tritonserver
--world-size N     leader mode: mpirun starts N servers; rank 0 serves, the others only load the engine
--multi-model      orchestrator mode: one server, which spawns the workers of each engine; or, with
                   --disable-spawn-processes, finds them as ranks 1 to N-1, by participant_ids of the configs
--engine llmapi    with --world-size N: trtllm-llmapi-launch makes the ranks beyond the first workers of the LLM API
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.host import shared_memory
from scripts.host.preflight import Refused
from scripts.server import served_engines
from scripts.server.served_engines import Engine
from scripts.server.server_options import flag_names
from scripts.server.tritonserver import Installation, Settings, Start, command, start_of, variables

TENSORRT_LLM, LLMAPI = "tensorrtllm", "llmapi"
# By engine: the name of the models' config. A model without a variant of that name has its config.pbtxt taken.
CONFIG_NAMES = {TENSORRT_LLM: "gpu", LLMAPI: "llmapi"}
LLMAPI_LAUNCH = "trtllm-llmapi-launch"
# Not mpirun's own binding, which would put rank 0, with every python model it has started, on one core.
MPIRUN = ("mpirun", "--allow-run-as-root", "--bind-to", "none")
# A rank beyond the first writes its own log; mpirun would mix the lines of all.
TO_LOG = ("sh", "-c", 'exec "$@" >>"$0" 2>&1')
# What a person says of the server that holds for the ranks that only load the engine, too.
_WORKER_FLAGS = {
    *("--log-verbose", "--log-info", "--log-warning", "--log-format", "--backend-config", "--host-policy"),
    *("--pinned-memory-pool-byte-size", "--cuda-memory-pool-byte-size", "--enable-peer-access"),
    *("--min-supported-compute-capability", "--buffer-manager-thread-count", "--model-load-thread-count"),
}


@dataclass(frozen=True)
class Mode:
    """What `serve gpu` was asked for. Raises Refused for what doesn't go together."""

    engine: str = TENSORRT_LLM
    world_size: int = 1
    multi_model: bool = False
    spawns: bool = True
    oversubscribe: bool = False

    def __post_init__(self) -> None:
        if self.world_size < 1:
            raise Refused(f"--world-size is {self.world_size}; it must be 1 or more")
        if self.multi_model and self.engine == LLMAPI:
            raise Refused("--multi-model is for --engine tensorrtllm; several models of the LLM API need no flag")
        if not self.spawns and not self.multi_model:
            raise Refused("--disable-spawn-processes needs --multi-model")
        if self.multi_model and self.spawns and self.world_size > 1:
            raise Refused(
                "--multi-model spawns the workers itself, so --world-size must be 1; "
                "--disable-spawn-processes uses ranks that mpirun starts"
            )
        if self.multi_model and not self.spawns and self.world_size < 2:
            raise Refused("--disable-spawn-processes needs --world-size: 1 for the orchestrator and 1 for each GPU")

    @property
    def uses_mpi(self) -> bool:
        return self.world_size > 1 or self.multi_model

    @property
    def programs(self) -> tuple[str, ...]:
        """What must be on the PATH beside the server."""
        launch = (LLMAPI_LAUNCH,) if self.engine == LLMAPI else ()
        return ("mpirun", *launch) if self.uses_mpi else ()

    def gpus_needed(self, engines: Sequence[Engine]) -> int:
        """The least number of GPUs; engines may share one."""
        return max((engine.ranks() for engine in engines), default=1)

    def check(self, engines: Sequence[Engine]) -> None:
        """Refuses engines that don't fit."""
        if self.engine == LLMAPI:
            if self.uses_mpi:
                alone = "leave out --world-size (each starts its own workers)"
                served_engines.check_leader(engines, self.world_size, alone)
        elif not self.uses_mpi:
            served_engines.check_alone(engines)
        elif not self.multi_model:
            served_engines.check_leader(engines, self.world_size)
        elif self.spawns:
            served_engines.check_spawning(engines)
        else:
            served_engines.check_participants(engines, self.world_size)


def start(settings: Settings, image: Installation, mode: Mode, engines: Sequence[Engine], gpus: int) -> Start:
    """How the server is started; `gpus` is how many there are."""
    if not mode.uses_mpi:
        return start_of(settings, image)
    prefix = shared_memory.new_prefix()
    words = [*MPIRUN, *(["--oversubscribe"] if mode.oversubscribe else [])]
    logs: list[Path] = []
    if mode.engine == LLMAPI:
        words += ["-n", str(mode.world_size), *_launched_by_llmapi(command(settings, image, prefix))]
    else:
        first = _spawning(settings, gpus) if mode.multi_model and mode.spawns else settings
        words += ["-n", "1", *command(first, image, f"{prefix}0_")]
        for rank in range(1, mode.world_size):
            logs.append(settings.log.with_name(f"{settings.log.stem}.rank{rank}{settings.log.suffix}"))
            worker = command(_worker(settings, mode, engines, rank), image, f"{prefix}{rank}_")
            words += [":", "-n", "1", *TO_LOG, str(logs[-1]), *worker]
    environment = variables(settings, image, prefix)
    if mode.multi_model:
        environment["TRTLLM_ORCHESTRATOR"] = "1"
        environment["TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES"] = "1" if mode.spawns else "0"
    return Start(image.tritonserver, tuple(words), environment, image.root, prefix, tuple(logs))


def _launched_by_llmapi(server: list[str]) -> list[str]:
    # The script hands its arguments on unquoted.
    bad = next((word for word in server if any(letter in word for letter in " \t\n*?[")), None)
    if bad:
        raise Refused(f"{LLMAPI_LAUNCH} would split {bad!r}: it must not contain blanks or any of *?[")
    return [LLMAPI_LAUNCH, *server]


def _spawning(settings: Settings, gpus: int) -> Settings:
    """An orchestrator computes nothing, so it leaves the GPUs' memory to its workers."""
    frugal = ["--pinned-memory-pool-byte-size=0", "--enable-peer-access=false"]
    frugal += [f"--cuda-memory-pool-byte-size={gpu}:0" for gpu in range(gpus)]
    given = flag_names(settings.extra)
    return replace(settings, extra=(*(flag for flag in frugal if not flag_names([flag]) & given), *settings.extra))


def _worker(settings: Settings, mode: Mode, engines: Sequence[Engine], rank: int) -> Settings:
    """A server that loads the engine and serves nobody."""
    models = [engine.model for engine in engines if not mode.multi_model or engine.takes_part(rank)]
    extra = tuple(flag for flag in settings.extra if "=" in flag and flag_names([flag]) <= _WORKER_FLAGS)
    return replace(settings, models=tuple(models), extra=extra, listens=False)
