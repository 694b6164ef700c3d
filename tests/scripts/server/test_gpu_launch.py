"""The command lines of `serve gpu`, beside those of NVIDIA's launch_triton_server.py, option by option."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts import serve
from scripts.host.preflight import Refused
from scripts.server import gpu_launch, served_engines
from scripts.server.gpu_image import Image
from scripts.server.gpu_launch import LLMAPI, Mode
from scripts.server.tritonserver import Start, described
from tests import gpu_machine
from tests.gpu_machine import GpuMachine

TRITONSERVER = "/opt/tritonserver/bin/tritonserver"
FIRST, WORKER = "the first rank", "a rank beyond it"
NOT_TWICE = "a rank beyond the first has no endpoint: servers on one port fail, or take each other's requests"
# What serve gpu says and the launcher doesn't, the other way round, or with another value, and why.
DIFFERENCES = {
    ("mpirun", "--bind-to"): "mpirun would put the first rank, and every python model it starts, on one core",
    (FIRST, "--http-address"): "this machine alone unless --host says more",
    (FIRST, "--grpc-address"): "this machine alone unless --host says more",
    (FIRST, "--grpc-max-connection-age"): "clients move to a server that takes over",
    (FIRST, "--metrics-address"): "this machine alone unless --host says more",
    (FIRST, "--backend-directory"): "beside the server that is named",
    (FIRST, "--cache-directory"): "beside the server that is named",
    (FIRST, "--exit-timeout-secs"): "the drain is known to who waits for it",
    (FIRST, "--model-config-name"): "the variants of this repository",
    (FIRST, "--model-control-mode"): "a model whose process died is loaded anew",
    (FIRST, "--load-model"): "in explicit mode each is named",
    (FIRST, "--backend-config"): "two servers with the launcher's prefix0_ take each other's shared memory",
    (FIRST, "--http-restricted-api"): "whoever may load a model runs code",
    (FIRST, "--grpc-restricted-protocol"): "whoever may load a model runs code",
    (WORKER, "--backend-config"): "two servers with the launcher's prefix1_ take each other's shared memory",
    (WORKER, "--http-port"): NOT_TWICE,
    (WORKER, "--grpc-port"): NOT_TWICE,
    (WORKER, "--metrics-port"): NOT_TWICE,
    (WORKER, "--allow-http"): NOT_TWICE,
    (WORKER, "--allow-grpc"): NOT_TWICE,
    (WORKER, "--allow-metrics"): NOT_TWICE,
    (WORKER, "--backend-directory"): "as the first rank",
    (WORKER, "--cache-directory"): "as the first rank",
    (WORKER, "--exit-timeout-secs"): "as the first rank",
    (WORKER, "--model-config-name"): "as the first rank",
    (WORKER, "--load-model"): "a worker of an orchestrator loads the engines it takes part in, no others",
}


@dataclass(frozen=True)
class Rank:
    count: int
    program: str
    options: dict[str, list[str]]


def parsed(words: Sequence[str]) -> tuple[set[str], list[Rank]]:
    """mpirun's own options, and each `-n` part; a rank's log and launcher are no part of its program."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            parts.append([])
        else:
            parts[-1].append(word)
    own = set(parts[0][1 : parts[0].index("-n")])
    ranks = []
    for part in filter(None, parts):
        place = part.index("-n")
        program = next(i for i, word in enumerate(part) if word == TRITONSERVER)
        options: dict[str, list[str]] = {}
        for option in dict.fromkeys(part[program + 1 :]):  # the launcher says the ports twice
            name, _, value = option.partition("=")
            options.setdefault(name, []).append(value)
        ranks.append(Rank(int(part[place + 1]), part[program], options))
    return own, ranks


def launchers_words(repository: Path, models: Sequence[str], mode: Mode, gpus: int) -> list[str]:
    """What launch_triton_server.py runs for the same purpose, of a repository on Triton 25.12."""
    words = ["mpirun", "--allow-run-as-root", *(["--oversubscribe"] if mode.oversubscribe else [])]
    ports = ["--grpc-port=8001", "--http-port=8000", "--metrics-port=8002"]
    for rank in range(mode.world_size):
        words += ["-n", "1", *(["trtllm-llmapi-launch"] if mode.engine == LLMAPI else [])]
        words += [TRITONSERVER, f"--model-repository={repository}", *ports]
        if rank:
            words += ["--model-control-mode=explicit", *(f"--load-model={model}" for model in models)]
        if mode.multi_model and mode.spawns:
            words += ["--pinned-memory-pool-byte-size=0", "--enable-peer-access=false"]
            words += [f"--cuda-memory-pool-byte-size={gpu}:0" for gpu in range(gpus)]
        words += [*ports, "--disable-auto-complete-config"]
        words += [f"--backend-config=python,shm-region-prefix-name=prefix{rank}_", ":"]
    return words


@pytest.fixture
def machine(tmp_path: Path) -> GpuMachine:
    return gpu_machine.make(tmp_path)


def start(machine: GpuMachine, mode: Mode, *flags: str, gpus: int = 2) -> Start:
    options, extra = serve.parse(["gpu", f"--model-repository={machine.repository}", f"--engine={mode.engine}", *flags])
    settings = serve.settings_of(options, extra)
    engines = served_engines.find(settings.repository, settings.models)
    return gpu_launch.start(settings, Image(), mode, engines, gpus)


def differences(ours: Sequence[str], theirs: Sequence[str]) -> set[tuple[str, str]]:
    (our_own, our_ranks), (their_own, their_ranks) = parsed(ours), parsed(theirs)
    found = {("mpirun", word) for word in our_own ^ their_own if word.startswith("--")}
    assert len(our_ranks) == len(their_ranks)
    for number, (our, their) in enumerate(zip(our_ranks, their_ranks, strict=True)):
        assert (our.count, our.program) == (their.count, their.program)
        names = our.options.keys() | their.options.keys()
        kind = WORKER if number else FIRST
        found |= {(kind, name) for name in names if our.options.get(name) != their.options.get(name)}
    return found


MODES = {
    "leader": Mode(world_size=2),
    "spawning": Mode(multi_model=True, oversubscribe=True),
    "spawned beforehand": Mode(multi_model=True, spawns=False, world_size=4),
}


def test_every_difference_from_nvidias_launcher_has_its_reason(machine):
    machine.add_engine("large", ranks=2, participant_ids="1,2")
    machine.add_engine("small", ranks=1, participant_ids="3")
    found = set()
    for mode in MODES.values():
        ours = start(machine, mode).command
        found |= differences(ours, launchers_words(machine.repository, ["large", "small"], mode, gpus=2))
    assert found == DIFFERENCES.keys()


def test_leader_mode_is_the_launchers_but_for_what_holds_in_all_modes(machine):
    machine.add_engine("large", ranks=2)
    mode = MODES["leader"]
    found = differences(start(machine, mode).command, launchers_words(machine.repository, ["large"], mode, gpus=2))
    assert found == DIFFERENCES.keys() - {(WORKER, "--load-model")}


@pytest.mark.parametrize(
    ("mode", "orchestrator", "spawns"),
    [("leader", None, None), ("spawning", "1", "1"), ("spawned beforehand", "1", "0")],
)
def test_the_environment_tells_tensorrt_llm_the_mode(machine, mode, orchestrator, spawns):
    variables = start(machine, MODES[mode]).variables
    assert variables.get("TRTLLM_ORCHESTRATOR") == orchestrator
    assert variables.get("TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES") == spawns


def test_a_worker_that_was_spawned_beforehand_loads_the_engines_that_it_takes_part_in(machine):
    machine.add_engine("large", ranks=2, count=2, participant_ids="1,2;4,5")
    machine.add_engine("small", participant_ids="3")
    mode = Mode(multi_model=True, spawns=False, world_size=6)
    _, ranks = parsed(start(machine, mode).command)
    assert [rank.options["--load-model"] for rank in ranks[1:]] == [["large"]] * 2 + [["small"]] + [["large"]] * 2


def test_one_gpu_needs_no_mpirun(machine):
    machine.add_engine("small")
    command = start(machine, Mode()).command
    assert command[0] == TRITONSERVER
    assert "--model-config-name=gpu" in command


def test_the_llm_api_spreads_over_gpus_by_its_own_launcher(machine):
    machine.add_engine("large")
    command = start(machine, Mode(engine=LLMAPI, world_size=2)).command
    assert command[:7] == (*gpu_launch.MPIRUN, "-n", "2", "trtllm-llmapi-launch")
    assert command[7] == TRITONSERVER
    assert "--model-config-name=llmapi" in command
    assert start(machine, Mode(engine=LLMAPI)).command[0] == TRITONSERVER


def test_what_trtllm_llmapi_launch_would_take_apart_is_refused(machine):
    machine.add_engine("large")
    with pytest.raises(Refused, match=r"trtllm-llmapi-launch would split '--trace-config=triton,file=a b'"):
        start(machine, Mode(engine=LLMAPI, world_size=2), "--trace-config=triton,file=a b")


def test_what_a_person_says_of_memory_and_logs_holds_for_every_rank_and_endpoints_for_the_first(machine):
    machine.add_engine("large", ranks=2)
    flags = ("--pinned-memory-pool-byte-size=1", "--log-verbose=1", "--grpc-keepalive-time=9", "--rate-limit=off")
    _, (first, worker) = parsed(start(machine, Mode(world_size=2), *flags).command)
    assert set(flags) <= {f"{name}={value}" for name, values in first.options.items() for value in values}
    assert worker.options["--pinned-memory-pool-byte-size"] == ["1"]
    assert worker.options["--log-verbose"] == ["1"]
    assert not {"--grpc-keepalive-time", "--rate-limit"} & worker.options.keys()


def test_a_spawning_orchestrator_leaves_the_gpus_memory_to_its_workers_unless_told_otherwise(machine):
    machine.add_engine("large")
    _, (first,) = parsed(start(machine, MODES["spawning"], "--cuda-memory-pool-byte-size=0:5", gpus=2).command)
    assert first.options["--pinned-memory-pool-byte-size"] == ["0"]
    assert first.options["--cuda-memory-pool-byte-size"] == ["0:5"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"world_size": 0}, "--world-size is 0"),
        ({"multi_model": True, "world_size": 2}, "--multi-model spawns the workers itself"),
        ({"spawns": False}, "--disable-spawn-processes needs --multi-model"),
        ({"multi_model": True, "spawns": False}, "--disable-spawn-processes needs --world-size"),
        ({"multi_model": True, "engine": LLMAPI}, "--multi-model is for --engine tensorrtllm"),
    ],
)
def test_modes_that_do_not_go_together_are_refused(options, said):
    with pytest.raises(Refused, match=said):
        Mode(**options)


def test_what_is_shown_is_what_a_shell_runs(machine):
    machine.add_engine("large", ranks=2)
    shown = start(machine, MODES["leader"])
    words = shlex.split(described(shown).replace("\\\n", " "))
    command = words[words.index("mpirun") :]
    assert tuple(command) == shown.command
    assert f"PYTHONPATH={shown.variables['PYTHONPATH']}" in words or "PYTHONPATH" not in described(shown)
    assert f"LLM_ROUTER_SHM_PREFIX={shown.shm_prefix}" in words


def test_a_dry_run_needs_no_gpu_and_says_what_would_be_refused(machine, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    machine.add_engine("large", ranks=2)
    arguments = ["gpu", "--dry-run", "--world-size=2", f"--model-repository={machine.repository}"]
    assert serve.main(arguments) == 0
    printed = capsys.readouterr()
    assert printed.out.count("--load-model=large") == 2
    assert printed.err.startswith("without --dry-run: there is no GPU here") and printed.err.count("\n") == 1
