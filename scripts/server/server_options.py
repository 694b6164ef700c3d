"""tritonserver's own options, as scripts/serve takes them: a wrong value, a name that does not exist and options that
don't go together are refused before anything starts. Names and forms are those of `tritonserver --help`.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Collection, Sequence
from itertools import zip_longest

from scripts.host.preflight import Refused
from scripts.server.option_names import OTHERS, RENAMED

Check = Callable[[str], str]  # gives the value back, or raises argparse.ArgumentTypeError

MODES = ("none", "poll", "explicit")


def flag_names(arguments: Sequence[str]) -> set[str]:
    """The flags among `arguments`, without their values."""
    return {argument.split("=", 1)[0] for argument in arguments if argument.startswith("--")}


def flag_value(arguments: Sequence[str], flag: str) -> str | None:
    """What the last `--flag=value` or `--flag value` among `arguments` says, None without one."""
    found = None
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        name, equals, value = argument.partition("=")
        if name == flag:
            found = value if equals else following
    return found


def is_off(value: str | None) -> bool:
    """Whether a flag's value is one of those that tritonserver takes for false."""
    return value is not None and value.lower() in ("false", "off", "0")


def _matching(pattern: str, form: str) -> Check:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise argparse.ArgumentTypeError(f"it is {value!r} and must be {form}")
        return value

    return check


def _one_of(*words: str) -> Check:
    return _matching("|".join(words), f"{', '.join(words[:-1])} or {words[-1]}")


_COUNT = _matching(r"\d{1,18}", "a whole number, 0 or more")
_POSITIVE = _matching(r"0*[1-9]\d{0,17}", "a whole number, 1 or more")
_NUMBER = _matching(r"\d+(\.\d+)?", "a number, 0 or more")
_SWITCH = _matching(r"(?i)true|false|on|off|1|0", "true or false")
_TEXT = _matching(r"(?s).+", "something")
_SETTING = _matching(r"[^,=]+,[^=]+=.*", "NAME,KEY=VALUE")

# By group of the help text: name, form of the value, what it is for; tritonserver's default in brackets.
OPTIONS: dict[str, list[tuple[str, str, Check, str]]] = {
    "models, of tritonserver": [
        (
            "model-control-mode",
            "MODE",
            _one_of(*MODES),
            "explicit (the default here): models can be unloaded and loaded, and one whose process died is reloaded; "
            "poll: the folder is watched for changes; none: nothing changes",
        ),
        ("load-model", "NAME", _TEXT, "load only this model (explicit mode, repeatable); by default, and for *, all"),
        ("repository-poll-secs", "S", _POSITIVE, "seconds between two looks in poll mode (15)"),
        ("model-load-thread-count", "N", _POSITIVE, "models loaded at a time (4)"),
        ("model-load-retry-count", "N", _COUNT, "(0)"),
        (
            "model-load-gpu-limit",
            "GPU:SHARE",
            _matching(r"\d+:(0?\.\d+|0|1|1\.0*)", "GPU:SHARE, 0 to 1"),
            "refuse to load models when more of the GPU's memory is in use",
        ),
        ("exit-on-error", "BOOL", _SWITCH, "false: serve without the models that fail to load (true)"),
        ("strict-readiness", "BOOL", _SWITCH, "the server is only ready while every model is (true)"),
        ("backend-config", "BACKEND,KEY=VALUE", _SETTING, "may be repeated"),
        ("cache-config", "CACHE,KEY=VALUE", _SETTING, "response cache, such as local,size=1048576"),
    ],
    "scheduling and memory, of tritonserver": [
        (
            "rate-limit",
            "MODE",
            _one_of("off", "execution_count"),
            "whether rate_limiter of config.pbtxt is applied (off)",
        ),
        (
            "rate-limit-resource",
            "NAME:COUNT[:GPU]",
            _matching(r"[^:]+:\d+(:\d+)?", "NAME:COUNT or NAME:COUNT:GPU"),
            "how many units instances share (the most that one asks for)",
        ),
        ("buffer-manager-thread-count", "N", _COUNT, "threads that copy tensors (0)"),
        ("pinned-memory-pool-byte-size", "BYTES", _COUNT, "host memory for copies to GPUs (268435456)"),
        ("cuda-memory-pool-byte-size", "GPU:BYTES", _matching(r"\d+:\d+", "GPU:BYTES"), "may be repeated (67108864)"),
        ("enable-peer-access", "BOOL", _SWITCH, "copies from GPU to GPU (true)"),
        ("min-supported-compute-capability", "N", _NUMBER, "ignore older GPUs"),
        ("host-policy", "NAME,KEY=VALUE", _SETTING, "numa-node, cpu-cores"),
    ],
    "endpoints, of tritonserver": [
        ("allow-grpc", "BOOL", _SWITCH, "(true)"),
        ("allow-metrics", "BOOL", _SWITCH, "(true)"),
        ("allow-gpu-metrics", "BOOL", _SWITCH, "(true)"),
        ("allow-cpu-metrics", "BOOL", _SWITCH, "(true)"),
        ("metrics-interval-ms", "MS", _NUMBER, "(2000)"),
        ("metrics-config", "KEY=VALUE", _matching(r"[^=]+=.*", "KEY=VALUE"), "may be repeated"),
        ("http-thread-count", "N", _POSITIVE, "(8)"),
        ("grpc-infer-allocation-pool-size", "N", _COUNT, "request objects kept for reuse (8)"),
        ("grpc-infer-response-compression-level", "LEVEL", _one_of("none", "low", "medium", "high"), "(none)"),
        ("grpc-keepalive-time", "MS", _POSITIVE, "time after which a ping is sent (7200000)"),
        ("grpc-keepalive-timeout", "MS", _POSITIVE, "time to wait for its answer before closing (20000)"),
        ("grpc-keepalive-permit-without-calls", "BOOL", _SWITCH, "(false)"),
        ("grpc-http2-max-pings-without-data", "N", _COUNT, "0: any number (2)"),
        ("grpc-http2-min-recv-ping-interval-without-data", "MS", _COUNT, "an earlier ping counts as a strike (300000)"),
        ("grpc-http2-max-ping-strikes", "N", _COUNT, "0: any number (2)"),
        ("grpc-max-connection-age", "MS", _POSITIVE, "(no end)"),
        ("grpc-max-connection-age-grace", "MS", _COUNT, "(no end)"),
        ("grpc-use-ssl", "BOOL", _SWITCH, "(false)"),
        ("grpc-use-ssl-mutual", "BOOL", _SWITCH, "(false)"),
        ("grpc-server-cert", "FILE", _TEXT, "PEM"),
        ("grpc-server-key", "FILE", _TEXT, "PEM"),
        ("grpc-root-cert", "FILE", _TEXT, "PEM"),
    ],
    "logs and traces, of tritonserver": [
        ("log-verbose", "N", _COUNT, "0: no verbose lines (0)"),
        ("log-info", "BOOL", _SWITCH, "(true)"),
        ("log-warning", "BOOL", _SWITCH, "(true)"),
        ("log-format", "FORM", _one_of("default", "ISO8601"), "(default)"),
        (
            "trace-config",
            "[MODE,]KEY=VALUE",
            _matching(r"((triton|opentelemetry),)?[^,=]+=.*", "KEY=VALUE, triton,KEY=VALUE or opentelemetry,KEY=VALUE"),
            "such as level=TIMESTAMPS, rate=100, triton,file=trace.json; may be repeated",
        ),
    ],
}
KNOWN = frozenset(name for group in OPTIONS.values() for name, *_ in group)


class _ForServer(argparse.Action):
    """Keeps the option as tritonserver gets it, in `server_flags` of the namespace."""

    def __call__(self, parser: object, namespace: argparse.Namespace, value: object, option: object = None) -> None:
        namespace.server_flags.append(f"{self.option_strings[0]}={value}")


def add_to(parser: argparse.ArgumentParser) -> None:
    """The namespace of `parser` needs an empty list `server_flags`."""
    for title, options in OPTIONS.items():
        group = parser.add_argument_group(title)
        for name, form, check, purpose in options:
            group.add_argument(f"--{name}", action=_ForServer, type=check, metavar=form, help=purpose)


def check_names(arguments: Sequence[str], own: Collection[str], is_pinned: bool) -> None:
    """Refuses an option that exists neither here (`own`, without dashes) nor in tritonserver.

    Where the server's version is not ours (`is_pinned` false), names that are not known may be newer ones.
    """
    known = {*own, *KNOWN, *OTHERS}
    for name in sorted(flag.removeprefix("--") for flag in flag_names(arguments) if flag != "--"):
        dashed = name.lower().replace("_", "-")
        if name in known:
            continue
        if dashed in RENAMED:
            raise Refused(f"there is no --{name}: {RENAMED[dashed]}")
        if dashed in known:
            raise Refused(f"there is no --{name}: use --{dashed}")
        if is_pinned:
            near = difflib.get_close_matches(dashed, sorted(known), 1, 0.75)
            raise Refused(
                f"there is no --{name}: " + (f"--{near[0]}?" if near else "scripts/serve --help lists all of them")
            )


def check_together(flags: Sequence[str]) -> None:
    """Refuses what tritonserver would refuse later, or not heed."""
    given, mode = flag_names(flags), flag_value(flags, "--model-control-mode") or "explicit"
    named = [flag.partition("=")[2] for flag in flags if flag.startswith("--load-model=")]
    if named and mode != "explicit":
        raise Refused(f"--load-model needs --model-control-mode=explicit: {mode} loads every model of the repository")
    if "*" in named and len(named) > 1:
        raise Refused("--load-model=* means every model: leave out the other --load-model")
    if "--repository-poll-secs" in given and mode != "poll":
        raise Refused("--repository-poll-secs needs --model-control-mode=poll")
    if "--rate-limit-resource" in given and flag_value(flags, "--rate-limit") != "execution_count":
        raise Refused("--rate-limit-resource needs --rate-limit=execution_count: without that nothing is limited")
