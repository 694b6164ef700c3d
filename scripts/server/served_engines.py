"""The TensorRT-LLM engines of a model repository, and whether they fit the way in which they are to be started.

The rules are those of TensorRT-LLM's C++ executor (initializeWorkers): in leader mode the ranks of MPI are those of the
engine; an orchestrator that spawns its workers takes no participant_ids, one that finds them started needs them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.host.preflight import Refused
from scripts.server import model_folders

BACKEND = "tensorrtllm"
_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size")
_FOLDERS = ("gpt_model_path", "encoder_model_path")


@dataclass(frozen=True)
class Engine:
    """An engine model. `participants`: the ranks of MPI that its config gives to each instance. `gpus`: how many one
    of the LLM API takes, which has no built engine to ask; else 0."""

    model: str
    folders: tuple[Path, ...]
    instances: int
    participants: tuple[tuple[int, ...], ...] = ()
    gpus: int = 0

    def ranks(self) -> int:
        """How many GPUs the engine is for. Raises Refused if it isn't there, or not whole."""
        return self.gpus or max((_ranks(self.model, folder) for folder in self.folders), default=1)

    def takes_part(self, rank: int) -> bool:
        """Whether the process of that rank computes for this model."""
        return any(rank in instance for instance in self.participants)


def find(repository: Path, models: Sequence[str]) -> list[Engine]:
    """Those of `models` whose config.pbtxt is of the TensorRT-LLM backend."""
    configs = {model: model_folders.config(repository / model, None) for model in models}
    return [_engine(model, config) for model, config in configs.items() if model_folders.backend(config) == BACKEND]


def find_llmapi(repository: Path, models: Sequence[str], config_name: str) -> list[Engine]:
    """The same models as the LLM API serves them, by their variants of that name. Raises Refused where one has none."""
    engines = []
    for engine in find(repository, models):
        if model_folders.config_file(repository / engine.model, config_name).name == "config.pbtxt":
            missing = f"{engine.model} has no configs/{config_name}.pbtxt"
            raise Refused(f"{missing}: leave it out with --skip-model={engine.model}")
        config = model_folders.config(repository / engine.model, config_name)
        sizes = (model_folders.parameter(config, key) or "1" for key in _PARALLEL)
        gpus = math.prod(int(size) if size.isdigit() else 1 for size in sizes)  # the model itself refuses what is none
        engines.append(replace(engine, instances=model_folders.instances(config), gpus=gpus))
    return engines


def _engine(model: str, config: str) -> Engine:
    paths = (model_folders.parameter(config, key) for key in _FOLDERS)
    participants = model_folders.parameter(config, "participant_ids") or ""
    try:
        ranks = [tuple(int(rank) for rank in part.split(",")) for part in participants.split(";") if part.strip()]
    except ValueError:
        raise Refused(f"{model}: participant_ids is {participants!r}; it must be ranks, such as 1,2;3,4") from None
    folders = tuple(Path(path) for path in paths if path and not path.startswith("${"))
    return Engine(model, folders, model_folders.instances(config), tuple(ranks))


def _ranks(model: str, folder: Path) -> int:
    config = folder / "config.json"
    if not config.is_file():
        raise Refused(
            f"{folder} holds no engine, which {model} needs: build it with scripts.build_engines and mount "
            f"engines/built at {folder.parent.parent}, or leave the model out with --skip-model={model}"
        )
    try:
        mapping = json.loads(config.read_text())["pretrained_config"]["mapping"]
        ranks = int(mapping.get("world_size") or mapping["tp_size"] * mapping.get("pp_size", 1))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise Refused(f"{config} does not say how many GPUs the engine is for (pretrained_config.mapping)") from None
    missing = [rank for rank in range(ranks) if not (folder / f"rank{rank}.engine").is_file()]
    if missing:
        raise Refused(f"{folder} lacks rank{missing[0]}.engine of {ranks}: {model} was not built completely")
    return ranks


def check_alone(engines: Sequence[Engine]) -> None:
    """Refuses engines that one process can't serve."""
    for engine in engines:
        if engine.ranks() > 1:
            way = "--multi-model serves it beside the others"
            if len(engines) == 1:
                way = f"--world-size={engine.ranks()} serves it"
            raise Refused(f"the engine of {engine.model} is for {engine.ranks()} GPUs: {way}")


def check_leader(engines: Sequence[Engine], world_size: int, otherwise: str = "use --multi-model") -> None:
    """Refuses all but one engine model of one instance for exactly so many ranks, which is what leader mode and
    trtllm-llmapi-launch serve. `otherwise`: how several are served."""
    if len(engines) > 1:
        names = ", ".join(engine.model for engine in engines)
        others = " ".join(f"--skip-model={engine.model}" for engine in engines[1:])
        raise Refused(
            f"--world-size={world_size} spreads one engine, and there are {len(engines)} ({names}): "
            f"{otherwise}, or leave the others out, as in {others}"
        )
    for engine in engines:
        if engine.instances > 1:
            raise Refused(
                f"{engine.model} has {engine.instances} instances, and --world-size={world_size} serves one: "
                f"set count to 1 in its instance_group, or {otherwise}"
            )
        if engine.ranks() != world_size:
            raise Refused(f"the engine of {engine.model} is for {engine.ranks()} GPUs, --world-size is {world_size}")


def check_spawning(engines: Sequence[Engine]) -> None:
    """Refuses what an orchestrator that spawns its workers can't serve."""
    for engine in engines:
        engine.ranks()  # raises where there is no whole engine
        if engine.participants:
            raise Refused(
                f"{engine.model} has participant_ids, which are for workers that are started beforehand: "
                "remove them from its config.pbtxt, or add --disable-spawn-processes"
            )


def check_participants(engines: Sequence[Engine], world_size: int) -> None:
    """Refuses configs that do not share out the ranks 1 to world_size - 1 among the engines' instances."""
    needed = 1 + sum(engine.ranks() * engine.instances for engine in engines)
    if world_size != needed:
        raise Refused(
            f"--world-size is {world_size}; the orchestrator and the ranks of all engines need {needed} processes"
        )
    first = 1
    for engine in engines:
        ranks = engine.ranks()
        wanted = [range(start, start + ranks) for start in range(first, first + ranks * engine.instances, ranks)]
        first += ranks * engine.instances
        if [len(instance) for instance in engine.participants] != [ranks] * engine.instances:
            raise Refused(
                f'{engine.model} has participant_ids "{_text(engine.participants)}" in its config.pbtxt, and needs '
                f'{ranks} for each of its {engine.instances} instances, such as "{_text(wanted)}"'
            )
    taken = sorted(rank for engine in engines for instance in engine.participants for rank in instance)
    if taken != list(range(1, world_size)):
        raise Refused(
            f"participant_ids of all engines name the ranks {', '.join(map(str, taken))}; "
            f"each of 1 to {world_size - 1} must appear exactly once (0 is the orchestrator)"
        )


def _text(participants: Sequence[Sequence[int]]) -> str:
    return ";".join(",".join(map(str, instance)) for instance in participants)
