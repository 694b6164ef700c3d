"""Starts tritonserver on this machine and stays with it: set-up, checks, progress, drain, clean-up.

    scripts/serve cpu [--http-port N] [--gateway-port N --gateway-workers N | --no-gateway] [tritonserver flags]
    scripts/serve gpu [--world-size N | --multi-model] [--engine tensorrtllm|llmapi] [the same]
    scripts/serve gpu --world-size 2 --dry-run
    scripts/serve cpu --http-port N --replace     a new server takes over from the one that runs, no request lost
    scripts/serve cpu --tier small --host 0.0.0.0 --grpc-port N     one tier's engine alone, for routers elsewhere
    scripts/serve cpu --remote small=HOST:PORT,HOST:PORT --remote large=HOST:PORT    a router without engines

Exit status: 0 stopped on request; 2 refused, nothing was started; 3 it did not get ready, such as when a model
failed to load; 4 the server died and --no-restart was given; 5 the set-up failed; 6 stopped on request, but requests
in flight were cut off; 130, 143 interrupted in the set-up.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from bls.paths import MODEL_REPOSITORY, ROOT
from scripts.environment import Environment, SetupFailed, explain
from scripts.host import preflight, shared_memory
from scripts.host.interruption import Interrupted, interruptible
from scripts.host.preflight import Refused
from scripts.host.progress import Progress
from scripts.server import (
    article_parameters,
    closed_engines,
    control_key,
    gateway_process,
    model_folders,
    replacement,
    serve_gpu,
    server_options,
    spare_models,
    succession_options,
    tiers_elsewhere,
)
from scripts.server.gateway_process import Gateway
from scripts.server.generation import MakeServer, MakeStart
from scripts.server.server_options import flag_names, flag_value, is_off
from scripts.server.spare_models import SpareModelFailed
from scripts.server.supervisor import Supervisor
from scripts.server.tritonserver import Settings, TritonServer, described, shown, start_of

DRAIN_S = 30
SERVED_HERE = {
    "--http-address": "--host",
    "--grpc-address": "--host",
    "--metrics-address": "--host",
    "--log-file": "--log",
    "--model-store": "--model-repository",
}
QUESTION = "What is the capital of France?"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message.removeprefix("argument "))


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """This script's options, and the rest, for tritonserver. Raises Refused, or SystemExit for --help."""
    parser = _Parser(
        prog="scripts/serve",
        usage="scripts/serve cpu|gpu [options] [tritonserver flags]",
        description="Serves the models of this repository, and installs what is needed at the first start.",
        epilog=(__doc__ or "").partition("Exit status: ")[2],
        allow_abbrev=False,
    )
    parser.add_argument(
        "target", choices=("cpu", "gpu"), metavar="cpu|gpu", help="the hardware that the engines run on"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1; 0.0.0.0 listens on all)"
    )
    parser.add_argument("--http-port", type=int, default=8000, metavar="N", help="HTTP port (default: 8000)")
    parser.add_argument("--grpc-port", type=int, default=8001, metavar="N", help="gRPC port (default: 8001)")
    parser.add_argument("--metrics-port", type=int, default=8002, metavar="N", help="metrics port (default: 8002)")
    parser.add_argument(
        "--ready-port", type=int, metavar="N", help="port for GET /ready, which gives 200 while every model is ready"
    )
    parser.add_argument(
        "--pages-host",
        metavar="ADDRESS",
        help="address of the metrics and the ready port, which only count (default: where Triton listens)",
    )
    parser.add_argument("--model-repository", type=Path, default=MODEL_REPOSITORY, metavar="DIR")
    parser.add_argument(
        "--skip-model", action="append", default=[], metavar="NAME", help="leave this model out; repeatable"
    )
    parser.add_argument(
        "--drain-seconds",
        "--exit-timeout-secs",
        type=int,
        default=DRAIN_S,
        metavar="S",
        help="how long requests in flight may take to end once the server is told to stop (default: 30)",
    )
    parser.add_argument(
        "--lame-duck-s",
        type=float,
        default=0.0,
        metavar="S",
        help="how long before that new requests are still answered, but /ready says no to balancers (default: 0)",
    )
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="tritonserver's log (default: logs/tritonserver-<port>.log)"
    )
    parser.add_argument(
        "--ready-file",
        type=Path,
        metavar="FILE",
        help="write addresses and pids to this file, as JSON, once the server is ready",
    )
    parser.add_argument(
        "--open-control-api",
        action="store_true",
        help="let anyone who reaches the server load models, which means to run code, without a key",
    )
    parser.add_argument(
        "--close-engines",
        action="store_true",
        help="let the engines' models answer the router only (not possible for TensorRT-LLM's backend)",
    )
    parser.add_argument("--print-key", action="store_true", help="only print the key of the server that is running")
    parser.add_argument("--dry-run", action="store_true", help="only print the command line and its environment")
    succession_options.add_to(parser)
    tiers_elsewhere.add_to(parser)
    gateway_process.add_to(parser)
    serve_gpu.add_to(parser)
    server_options.add_to(parser)
    options, rest = parser.parse_known_args(arguments, argparse.Namespace(server_flags=[]))
    for flag in flag_names(rest) & SERVED_HERE.keys():
        raise Refused(f"use {SERVED_HERE[flag]} instead of {flag}")
    own = {name.removeprefix("--") for name in parser._option_string_actions}
    server_options.check_names(rest, own)
    serve_gpu.check_target(options)
    extra = [*options.server_flags, *rest]
    server_options.check_together(extra)
    if is_off(flag_value(extra, "--allow-http")):
        raise Refused("--allow-http=false is not possible, because readiness is asked over HTTP")
    for option in ("drain_seconds", "lame_duck_s"):
        if getattr(options, option) < 0:
            raise Refused(f"--{option.replace('_', '-')} must be 0 or more")
    return options, extra


def settings_of(options: argparse.Namespace, extra: Sequence[str]) -> Settings:
    """Raises Refused for a folder that holds no models, or not those that are named."""
    repository = options.model_repository.resolve()
    names = model_folders.names(repository) if repository.is_dir() else []
    if not names:
        raise Refused(
            f"{options.model_repository} contains no model; --model-repository must name a folder of model folders"
        )
    log = options.log or control_key.default_log(options.http_port)
    remote = tiers_elsewhere.remote(options)
    config_name = serve_gpu.config_name(options) if options.target == "gpu" else options.target
    config_name = tiers_elsewhere.CONFIG_NAME if remote else config_name
    models = tuple(_models(repository, names, options, extra, config_name, remote))
    settings = Settings(
        repository=repository,
        models=models,
        config_name=config_name,
        host=gateway_process.tritons_host(options, models),
        http_port=options.http_port,
        grpc_port=options.grpc_port,
        metrics_port=options.metrics_port,
        drain_s=options.drain_seconds,
        lame_duck_s=options.lame_duck_s,
        log=log.absolute(),
        extra=tuple(extra),
        ready_port=options.ready_port,
        pages_host=options.pages_host,
        remote=remote,
        control_key=None if options.open_control_api else control_key.new(),
        shares_ports=succession_options.plan_of(options).beside,
    )
    return closed_engines.closed(settings, names) if options.close_engines else settings


def _models(
    repository: Path,
    names: list[str],
    options: argparse.Namespace,
    extra: Sequence[str],
    config_name: str | None,
    remote: str,
) -> list[str]:
    """Those to load at the start."""
    named, skipped = _startup_models(extra), set(options.skip_model)
    unknown = sorted({*named, *skipped} - set(names))
    if unknown:
        raise Refused(f"{options.model_repository} has no model {unknown[0]}; it has {', '.join(names)}")
    if options.tier:
        return tiers_elsewhere.alone(names, options.tier, named or skipped)
    elsewhere = tiers_elsewhere.left_out(names, skipped, named, remote) if remote else set()
    if not skipped and (named or not elsewhere):
        return named or names
    if named or flag_value(extra, "--model-control-mode") in ("none", "poll"):
        which = "--skip-model" if skipped else "--remote"
        raise Refused(f"{which} cannot be combined with --load-model, nor with --model-control-mode=none or poll")
    skipped |= elsewhere
    left = model_folders.without(repository, names, skipped, config_name)
    if not left:
        raise Refused("--skip-model leaves out every model")
    return left


def _startup_models(extra: Sequence[str]) -> list[str]:
    """The models that --load-model names, as `--load-model=x` or `--load-model x`; none where that is all of them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--load-model", action="append", default=[])
    named: list[str] = parser.parse_known_args(extra)[0].load_model
    return [] if named == ["*"] else named


def check(settings: Settings) -> None:
    """Raises Refused if the server could not run."""
    preflight.check_path("the checkout", ROOT)
    preflight.check_path("--model-repository", settings.repository)
    ports = {"--http-port": settings.http_port, "--grpc-port": settings.grpc_port}
    pages = {"--metrics-port": settings.metrics_port}
    if settings.ready_port is not None:
        pages["--ready-port"] = settings.ready_port
    preflight.check_ports(settings.host, {**ports, **pages})
    if settings.pages_host:
        preflight.check_ports(settings.pages_host, pages)
    article_parameters.check(settings.repository, settings.models, settings.config_name)
    instances = model_folders.python_instances(settings.repository, list(settings.models), settings.config_name)
    preflight.check_shared_memory(instances)


def summary(settings: Settings, gateway: Gateway | None = None) -> str:
    """What a person wants to know once the server is ready."""
    http = settings.address(settings.http_port)
    lines = [
        f"  HTTP     http://{http}",
        f"  gRPC     {settings.address(settings.grpc_port)}",
        f"  metrics  http://{settings.address(settings.metrics_port)}/metrics",
        *([f"  ready    http://{settings.address(settings.ready_port)}/ready"] if settings.ready_port else []),
        f"  log      {shown(settings.log)}",
        f"  key      {_key_line(settings)}",
        *([f"  without  {settings.left_out}"] if settings.left_out else []),
    ]
    if "llm_router" in settings.models:
        body = json.dumps({"text_input": QUESTION, "max_tokens": 32, "apply_chat_template": True})
        lines += gateway.summary(QUESTION) if gateway else []
        port = "" if settings.http_port == 8000 else f" --port {settings.http_port}"
        lines += [
            "or in a terminal" if gateway and gateway.is_wanted else "try it",
            f"  {shown(ROOT / 'scripts' / 'ask')}{port} {shlex.quote(QUESTION)}",
            f"  curl -s http://{http}/v2/models/llm_router/generate -d {shlex.quote(body)}",
        ]
    return "\n".join([*lines, "ctrl-C stops the server once the requests in flight have been answered"])


def _key_line(settings: Settings) -> str:
    if settings.control_key is None:
        return "none: whoever reaches these ports can load models, which is to run code as this user"
    return f"{shown(control_key.file_beside(settings.log))}, to load and unload models"


def main(arguments: Sequence[str]) -> int:
    if "--print-key" in arguments:
        return control_key.print_key(arguments)
    interruptible()
    progress = Progress()
    try:
        options, extra = parse(arguments)
        settings = settings_of(options, extra)
        if options.replace:
            return replacement.have_replaced(settings, Environment() if options.target == "cpu" else None, progress)
        if options.target == "gpu":
            make_start, make_server = serve_gpu.prepare(options, settings, check, progress)
            if not options.dry_run:
                Gateway(options, settings.models).check()
            return _run(options, settings, make_start, make_server, progress)
        if options.dry_run:
            return _run(options, settings, lambda each: start_of(each, Environment()), TritonServer, progress)
        shared_memory.remove_stale()  # before the check, which what earlier servers left could fail for ever
        check(settings)
        Gateway(options, settings.models).check()
        setup = Environment()
        with setup.ensured(progress):
            check(settings)  # again: the set-up may have taken minutes
            return _run(options, settings, lambda each: start_of(each, setup), TritonServer, progress)
    except (Refused, SetupFailed, Interrupted) as reason:
        return explain(reason, progress)


def _run(
    options: argparse.Namespace,
    settings: Settings,
    make_start: MakeStart,
    make_server: MakeServer,
    progress: Progress,
) -> int:
    if options.dry_run:
        print(described(make_start(settings)))
        return 0

    plan = succession_options.plan_of(options)

    def served(each: Settings) -> int:
        gateway = Gateway(options, each.models)
        told = summary(each, gateway)
        supervisor = Supervisor(each, make_start, make_server, progress, told, options.ready_file, plan)
        log = each.log.with_name(f"gateway-{gateway.port}.log")
        with gateway.running(Environment().variables(), log, progress.say) as process:
            supervisor.put_behind(process)
            return supervisor.run()

    with control_key.kept(settings.control_key, control_key.file_beside(settings.log), progress.say):
        try:
            return served(settings)
        except SpareModelFailed as failed:
            left = spare_models.without(settings, failed)
            progress.say(f"warning: {failed}; starting again without {left.left_out.partition(':')[0]}")
            return served(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
