"""One request from Triton to its end: read, answered piece by piece, closed exactly once on every path."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from bls import errors, triton_io
from bls.reply import PieceTensors
from bls.request import WHAT_FITS, Defaults, Request, parse
from bls.router import Router
from bls.shadow import Shadow
from bls.watcher import GONE, TIMEOUT, Watch, Watcher

# Of llm_router/config.pbtxt. What is in capitals is Triton's own, such as EXECUTION_ENV_PATH.
PARAMETERS = (
    "accumulate_tokens",
    "apply_chat_template",
    "hide_cut_words",
    "max_tokens",
    "policy_file",
    "sensitive_words",
)


@dataclass(frozen=True)
class Door:
    """What the config of a model says of its requests."""

    is_decoupled: bool
    defaults: Defaults

    @classmethod
    def of(cls, args: Mapping[str, str]) -> Door:
        """Raises ValueError that names the parameter."""
        for name in triton_io.parameters(args):
            if name not in PARAMETERS and not name.isupper():
                raise ValueError(f"parameter {name} is unknown; known: {', '.join(PARAMETERS)}")
        template = triton_io.boolean_parameter(args, "apply_chat_template", default=False)
        tokens = triton_io.parameters(args).get("max_tokens", "").strip()
        if tokens and not ((tokens.isdecimal() and int(tokens)) or tokens == str(WHAT_FITS)):
            raise ValueError(f"parameter max_tokens is {tokens!r}; it must be a whole number above 0, or -1, or empty")
        return cls(triton_io.is_decoupled(args), Defaults(template, int(tokens) if tokens else None))


def serve(request: Any, router: Router, watcher: Watcher, door: Door) -> None:
    """Answers one request of llm_router. Whatever happens, its stream ends once; one that isn't decoupled has no more
    than that end, which Triton takes from a response sender as well."""
    sender = triton_io.Sender(request)
    watch = answer = None
    try:
        parsed = _read(request, router, door)
        timeout_seconds = parsed.timeout_seconds or router.policy.settings.timeout_seconds
        watch = Watch(sender.is_cancelled, timeout_seconds, _give_up_on(sender, router))
        watcher.follow(watch)
        with closing(router.answer(parsed, watch)) as answer:
            made = PieceTensors(parsed.outputs)
            for reply in answer:
                tensors = made.of(reply)
                if reply.finish_reason:
                    sender.finish(tensors)
                elif tensors:
                    sender.send(tensors)
    except errors.RouterError as error:
        sender.finish(error=error)
    except Exception as error:  # A bug of ours must not leave the client waiting: the log gets all of it.
        logging.exception("request id=%s", request.request_id())
        sender.finish(error=errors.EngineFailed(type(error).__name__))
    finally:
        watcher.follow(None)
        if watch is not None:
            watch.end()
    if answer is not None and answer.shadow:
        _run_shadow(answer.shadow, router, watcher)


def _run_shadow(due: Shadow, router: Router, watcher: Watcher) -> None:
    watch = Watch(lambda: False, router.policy.settings.shadow_seconds, lambda outcome: None)
    watcher.follow(watch)
    try:
        router.run_shadow(due, watch)
    except Exception:  # Nobody waits for it.
        logging.exception("shadow")
    finally:
        watcher.follow(None)
        watch.end()


def _read(request: Any, router: Router, door: Door) -> Request:
    settings = router.policy.settings
    try:
        parsed = parse(
            triton_io.inputs(request),
            triton_io.request_parameters(request),
            frozenset(request.requested_output_names()),
            request.request_id(),
            request.timeout(),
            settings.parameters,
            settings.template_values,
            door.defaults,
        )
        if parsed.stream and not door.is_decoupled:
            raise errors.BadRequest("stream is true, but the config of this model says decoupled: false")
        return parsed
    except errors.BadRequest as error:
        router.refuse(request.request_id(), error)
        raise


def _give_up_on(sender: triton_io.Sender, router: Router) -> Callable[[str], None]:
    """Ends the client's stream although the engine's goes on: a dead engine may hold a process, but no client."""

    def give_up(outcome: str) -> None:
        if outcome == GONE:
            logging.error("an engine's process died: this one waits for it for ever, until the router is loaded anew")
            kind = errors.EngineFailed if sender.has_sent else errors.EngineUnavailable
            sender.finish(error=kind("the engine's process died"))
            router.abandon()
            return
        error = errors.TimedOut if outcome == TIMEOUT else errors.Cancelled
        sender.finish(error=error("the engine does not end its stream"))

    return give_up
