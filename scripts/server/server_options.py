"""tritonserver's own options, as scripts/serve takes them, named and formed as in `tritonserver --help`.

Refused before anything starts: what the server would take in another way than it is meant. What it refuses itself it
refuses in its own words.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Sequence
from itertools import zip_longest
from pathlib import Path

from engines.worker.parameters import ELSEWHERE
from scripts.host.preflight import Refused

MODES = ("none", "poll", "explicit")
_OF_ENGINES = "it is a parameter of the engine's config.pbtxt"
_DOCKERS = "that is docker's flag: give it before the image's name"
_PRECISION = "precision is the checkpoint's own: quantisation in [tier.tensorrt_llm] of engines/specs.toml"
_BUILT = "it is fixed when the engine is built: [tier.tensorrt_llm] of engines/specs.toml"
# By name, with dashes for underscores, of NVIDIA's launch_triton_server.py and of articles: what to use instead.
LAUNCHER = {
    **{name.replace("_", "-"): hint for name, hint in ELSEWHERE.items()},
    **dict.fromkeys(("gpt-model-type", "batch-scheduler-policy", "max-tokens-in-paged-kv-cache"), _OF_ENGINES),
    **dict.fromkeys(("enable-kv-cache-reuse", "enable-chunked-context", "kv-cache-free-gpu-mem-fraction"), _OF_ENGINES),
    "cuda-graph": "cuda_graph_mode is a parameter of the engine's config.pbtxt",
    "rate-limiter": "use --rate-limit=execution_count",
    **dict.fromkeys(("gpus", "shm-size", "rm", "net", "network", "ipc", "ulimit", "volume", "publish"), _DOCKERS),
    **dict.fromkeys(("fp8-mode", "strongly-typed", "quantize-lm-head"), _PRECISION),
    "max-input-length": _BUILT,
    "max-input-len": _BUILT,
    "max-output-length": _BUILT,
    "max-output-len": _BUILT,
    "max-seq-len": _BUILT,
    "max-batch-size": _BUILT,
    "max-num-tokens": _BUILT,
    "tp-size": "use serve gpu --world-size N",
    "model-repo": "use --model-repository",
    "tensorrt-llm-model-name": "engine models are found by their backend; --load-model and --skip-model choose",
    "force": "it is not needed: only a port that is taken stops a server from starting",
    "no-mpi": "it is not needed: one GPU is served without mpirun",
    "multimodal-gpu0-cuda-mem-pool-bytes": "use --cuda-memory-pool-byte-size=0:BYTES",
    "trtllm-llmapi-launch": "use serve gpu --engine llmapi --world-size N",
    "exit-timeout": "use --exit-timeout-secs",
}


def flag_names(arguments: Sequence[str]) -> set[str]:
    """The flags among `arguments`, without their values."""
    return {argument.split("=", 1)[0] for argument in arguments if argument.startswith("--")}


def flag_value(arguments: Sequence[str], flag: str) -> str | None:
    """What the last `--flag=value` or `--flag value` among `arguments` says, None without one."""
    values = flag_values(arguments, flag)
    return values[-1] if values else None


def flag_values(arguments: Sequence[str], flag: str) -> list[str]:
    """What each of them says."""
    found = []
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        name, equals, value = argument.partition("=")
        if name == flag:
            found.append(value if equals else following)
    return found


def is_off(value: str | None) -> bool:
    """Whether a flag's value is one of those that tritonserver takes for false."""
    return value is not None and value.lower() in ("false", "off", "0")


def grpc_tls_flag(arguments: Sequence[str]) -> str:
    """The flag among `arguments` that has the gRPC port speak TLS; "" without one."""
    values = {flag: flag_value(arguments, flag) for flag in ("--grpc-use-ssl", "--grpc-use-ssl-mutual")}
    return next((flag for flag, value in values.items() if value and not is_off(value)), "")


# By group of the help text: name, form of the value, what it is for; tritonserver's default in brackets.
OPTIONS: dict[str, list[tuple[str, str, str]]] = {
    "models, of tritonserver": [
        (
            "model-control-mode",
            "MODE",
            "explicit (the default here): models can be unloaded and loaded, and one whose process died is reloaded; "
            "poll: the folder is watched for changes; none: nothing changes",
        ),
        ("load-model", "NAME", "load only this model (explicit mode, repeatable); by default, and for *, all"),
        ("repository-poll-secs", "S", "seconds between two looks in poll mode (15)"),
        ("model-load-thread-count", "N", "models loaded at a time (4)"),
        ("model-load-retry-count", "N", "(0)"),
        ("model-load-gpu-limit", "GPU:SHARE", "refuse to load models when more of the GPU's memory is in use"),
        ("exit-on-error", "BOOL", "false: serve without the models that fail to load (true)"),
        ("strict-readiness", "BOOL", "the server is only ready while every model is (true)"),
        ("backend-config", "BACKEND,KEY=VALUE", "may be repeated"),
        ("cache-config", "CACHE,KEY=VALUE", "response cache, such as local,size=1048576"),
    ],
    "scheduling and memory, of tritonserver": [
        ("rate-limit", "MODE", "off or execution_count: whether rate_limiter of config.pbtxt counts (off)"),
        ("rate-limit-resource", "NAME:COUNT[:GPU]", "how many units instances share (the most that one asks for)"),
        ("buffer-manager-thread-count", "N", "threads that copy tensors (0)"),
        ("pinned-memory-pool-byte-size", "BYTES", "host memory for copies to GPUs (268435456)"),
        ("cuda-memory-pool-byte-size", "GPU:BYTES", "may be repeated (67108864)"),
        ("enable-peer-access", "BOOL", "copies from GPU to GPU (true)"),
        ("min-supported-compute-capability", "N", "ignore older GPUs"),
        ("host-policy", "NAME,KEY=VALUE", "numa-node, cpu-cores"),
    ],
    "endpoints, of tritonserver": [
        ("allow-grpc", "BOOL", "(true)"),
        ("allow-metrics", "BOOL", "(true)"),
        ("allow-gpu-metrics", "BOOL", "(true)"),
        ("allow-cpu-metrics", "BOOL", "(true)"),
        ("metrics-interval-ms", "MS", "(2000)"),
        ("metrics-config", "KEY=VALUE", "may be repeated"),
        ("http-thread-count", "N", "(8)"),
        ("grpc-infer-allocation-pool-size", "N", "request objects kept for reuse (8)"),
        ("grpc-infer-response-compression-level", "LEVEL", "none, low, medium or high (none)"),
        ("grpc-keepalive-time", "MS", "time after which a ping is sent (7200000)"),
        ("grpc-keepalive-timeout", "MS", "time to wait for its answer before closing (20000)"),
        ("grpc-keepalive-permit-without-calls", "BOOL", "(false)"),
        ("grpc-http2-max-pings-without-data", "N", "0: any number (2)"),
        ("grpc-http2-min-recv-ping-interval-without-data", "MS", "an earlier ping counts as a strike (300000)"),
        ("grpc-http2-max-ping-strikes", "N", "0: any number (2)"),
        ("grpc-max-connection-age", "MS", "after which clients open another; a changeover takes as long (30000)"),
        ("grpc-max-connection-age-grace", "MS", "(no end)"),
        ("grpc-use-ssl", "BOOL", "(false)"),
        ("grpc-use-ssl-mutual", "BOOL", "(false)"),
        ("grpc-server-cert", "FILE", "PEM"),
        ("grpc-server-key", "FILE", "PEM"),
        ("grpc-root-cert", "FILE", "PEM"),
    ],
    "logs and traces, of tritonserver": [
        ("log-verbose", "N", "0: no verbose lines (0)"),
        ("log-info", "BOOL", "(true)"),
        ("log-warning", "BOOL", "(true)"),
        ("log-format", "FORM", "default or ISO8601 (default)"),
        (
            "trace-config",
            "[MODE,]KEY=VALUE",
            "such as level=TIMESTAMPS, rate=100, triton,file=trace.json; may be repeated",
        ),
    ],
}
KNOWN = frozenset(name for group in OPTIONS.values() for name, *_ in group)


class _ForServer(argparse.Action):
    """Keeps the option as tritonserver gets it, in `server_flags` of the namespace."""

    def __call__(self, parser: object, namespace: argparse.Namespace, value: object, option: object = None) -> None:
        namespace.server_flags.append(f"{self.option_strings[0]}={value}")


class _FileForServer(_ForServer):
    """The same of a file, which tritonserver would look for elsewhere than where the person stands; of one that it
    can't read it says that the port is in use."""

    def __call__(self, parser: object, namespace: argparse.Namespace, value: object, option: object = None) -> None:
        file = Path(str(value)).absolute()
        if not (file.is_file() and os.access(file, os.R_OK)):
            raise Refused(f"{self.option_strings[0]} {value} is no file that can be read")
        super().__call__(parser, namespace, file, option)


def add_to(parser: argparse.ArgumentParser) -> None:
    """The namespace of `parser` needs an empty list `server_flags`."""
    for title, options in OPTIONS.items():
        group = parser.add_argument_group(title)
        for name, form, purpose in options:
            action = _FileForServer if form == "FILE" else _ForServer
            group.add_argument(f"--{name}", action=action, metavar=form, help=purpose)


def check_names(arguments: Sequence[str], own: Collection[str]) -> None:
    """Refuses a misspelt option of `own` (without dashes) or OPTIONS, and one of NVIDIA's launcher.

    Others are handed on: the server refuses those that it doesn't know, and a later one may know more.
    """
    for name in sorted(flag.removeprefix("--") for flag in flag_names(arguments) if flag != "--"):
        dashed = name.lower().replace("_", "-")
        if dashed in LAUNCHER:
            raise Refused(f"there is no --{name}: {LAUNCHER[dashed]}")
        if dashed != name and dashed in {*own, *KNOWN}:
            raise Refused(f"there is no --{name}: use --{dashed}")


def check_together(flags: Sequence[str]) -> None:
    """Refuses what tritonserver would refuse later, or not heed."""
    given, mode = flag_names(flags), flag_value(flags, "--model-control-mode") or "explicit"
    if mode not in MODES:  # tritonserver takes capitals too, which nothing here does
        raise Refused(f"--model-control-mode is {mode!r} and must be {', '.join(MODES[:-1])} or {MODES[-1]}")
    named = [flag.partition("=")[2] for flag in flags if flag.startswith("--load-model=")]
    if named and mode != "explicit":
        raise Refused(f"--load-model needs --model-control-mode=explicit: {mode} loads every model of the repository")
    if "*" in named and len(named) > 1:
        raise Refused("--load-model=* means every model: leave out the other --load-model")
    if "--repository-poll-secs" in given and mode != "poll":
        raise Refused("--repository-poll-secs needs --model-control-mode=poll")
    if "--rate-limit-resource" in given and flag_value(flags, "--rate-limit") != "execution_count":
        raise Refused("--rate-limit-resource needs --rate-limit=execution_count: without it nothing is limited")
