"""The one file of `bls` that knows Triton: arrays in, arrays out, errors with their codes, calls of other models.

pb_utils is complete only once the stub has imported model.py (triton 2.51), so it is used inside functions alone.
"""

from __future__ import annotations

import asyncio  # noqa: F401 - the stub asks it about each answer: its first request would wait 20 ms for it
import ctypes
import hmac
import inspect
import json
import logging
import os
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import triton_python_backend_utils as pb_utils

from bls import errors
from bls.arrays import Array, Tensors, quick_lookup, quick_serializer, strings
from bls.contract import ENGINE_CONTROL, Contract
from bls.kept_tensors import KeptTensors

# A parameter of the router's engine requests. An error that follows data is lost in a BLS iterator of python_backend
# 24.10 (it carries no id) and may even reach another request: such an error is sent as sequence_length -1 instead,
# or as the id -1 to who asked for ids alone.
ERRORS_AS_DATA = "errors_as_data"

# What shows an engine's model that a request comes from a model of its own server, where scripts/serve --close-engines
# has given the server's processes a word that no client knows.
INTERNAL_KEY = "llm_router_internal_key"
INTERNAL_KEY_VARIABLE = "LLM_ROUTER_INTERNAL_KEY"
_KEY = os.environ.get(INTERNAL_KEY_VARIABLE, "")
_INTERNAL = {INTERNAL_KEY: _KEY} if _KEY else {}

# What Triton says, after a second, for a request that met a process which has died; scripts/serve has it replaced.
DEAD_PROCESS = "is not healthy"
CALL_ATTEMPTS = 3

# The iterators of streams that have ended. A thread of the stub drops its own reference to one soon after its end, and
# without Python's lock: were that the last, Python's heap would break (python_backend 24.10 and 25.12). That thread
# works in order, so an answer to a later `is_cancelled` says that it's done. At the process's end they aren't freed:
# the shared memory that they lie in is gone by then.
_ended_streams: list[Any] = []


# Its Tensor looks these up by name each time.
if hasattr(pb_utils, "serialize_byte_tensor"):
    pb_utils.serialize_byte_tensor = quick_serializer(pb_utils.serialize_byte_tensor)
for _name in ("numpy_to_triton_type", "triton_to_numpy_type"):
    if hasattr(pb_utils, _name):
        setattr(pb_utils, _name, quick_lookup(getattr(pb_utils, _name)))


def parameters(args: Mapping[str, str]) -> dict[str, str]:
    """The `parameters` of the model's config.pbtxt."""
    config = json.loads(args["model_config"])
    return {key: value["string_value"] for key, value in config.get("parameters", {}).items()}


def boolean_parameter(args: Mapping[str, str], name: str, default: bool) -> bool:
    """True for the words that NVIDIA's tensorrt_llm_bls takes for true. ValueError names a value that is no boolean."""
    value = parameters(args).get(name, str(default)).strip().lower()
    if value not in ("true", "yes", "y", "1", "t", "false", "no", "n", "0", "f"):
        raise ValueError(f"parameter {name} is {value!r}; it must be true or false")
    return value in ("true", "yes", "y", "1", "t")


def instances(args: Mapping[str, str]) -> int:
    """How many processes the model has."""
    return sum(group["count"] for group in json.loads(args["model_config"])["instance_group"])


def is_decoupled(args: Mapping[str, str]) -> bool:
    """Whether the model may answer a request by many responses; otherwise by exactly one, to plain infer too."""
    return bool(json.loads(args["model_config"]).get("model_transaction_policy", {}).get("decoupled", False))


def repository(args: Mapping[str, str]) -> Path:
    """The model repository: the folder that holds this model's folder."""
    return Path(args["model_repository"]).resolve().parent


def log_to_triton() -> None:
    """Sends Python's logging of this process to Triton's log."""
    # pb_utils asks `inspect` for the place of each line of the log, which is always the same one below, and that reads
    # source files: 10 ms the first time, and a third of what a line costs after that.
    inspect.getframeinfo = _frame_info  # type: ignore[assignment]
    logging.basicConfig(level=logging.INFO, handlers=[_TritonLog()], format="%(message)s", force=True)


def _frame_info(frame: FrameType, context: int = 1) -> inspect.Traceback:
    return inspect.Traceback(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, None, None)


class _TritonLog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        if record.levelno >= logging.ERROR:
            pb_utils.Logger.log_error(line)
        elif record.levelno >= logging.WARNING:
            pb_utils.Logger.log_warn(line)
        else:
            pb_utils.Logger.log_info(line)


def inputs(request: Any, contract: Contract | None = None) -> dict[str, Array]:
    """The tensors that the request holds, by name, batch dimension kept where Triton keeps it.

    Raises BadRequest if a mandatory one of `contract` is missing: Triton's core only counts them (Triton 2.51).
    """
    present = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
    for tensor in contract.inputs if contract else ():
        if not tensor.optional and tensor.name not in present:
            raise errors.BadRequest(f"{tensor.name} is missing")
    return present


def request_parameters(request: Any) -> dict[str, Any]:
    """What /generate or a client set beside the tensors."""
    text = request.parameters()
    return json.loads(text) if text else {}


def check_caller(request: Any) -> None:
    """Raises BadRequest for a client's own request to a model that answers this server's models alone."""
    if _KEY and not hmac.compare_digest(_KEY.encode(), str(request_parameters(request).get(INTERNAL_KEY, "")).encode()):
        raise errors.BadRequest("this engine answers llm_router alone: ask that")


def error_response(error: errors.RouterError) -> Any:
    return pb_utils.InferenceResponse(error=_triton_error(error))


def _triton_error(error: errors.RouterError) -> Any:
    return pb_utils.TritonError(str(error), getattr(pb_utils.TritonError, error.code))


def response(tensors: Tensors) -> Any:
    return pb_utils.InferenceResponse([_tensors.of(name, array) for name, array in tensors.items()])


def answer_each(
    requests: Sequence[Any],
    contract: Contract,
    function: Callable[[dict[str, Array], frozenset[str]], Tensors],
) -> list[Any]:
    """The responses of a model that is not decoupled: one a request, so that a bad request fails alone.

    `function(inputs, requested)` gives the outputs that were requested, or raises a RouterError.
    """
    return [_answer_one(request, contract, function) for request in requests]


def _answer_one(request: Any, contract: Contract, function: Callable[..., Tensors]) -> Any:
    try:
        requested = frozenset(request.requested_output_names())
        return response(function(inputs(request, contract), requested))
    except errors.RouterError as error:
        return error_response(error)
    except Exception as error:  # A bug of ours: the log gets all of it, the caller one line.
        logging.exception("request %s", request.request_id())
        return error_response(errors.EngineFailed(type(error).__name__))


def answer_together(
    requests: Sequence[Any],
    contract: Contract,
    function: Callable[[list[tuple[dict[str, Array], frozenset[str]]]], Sequence[Tensors | errors.RouterError]],
) -> list[Any]:
    """As `answer_each`, for a model that computes a batch at once: `function` gets all requests, and gives for each
    its outputs or what is wrong with it."""
    answers: list[Any] = [None] * len(requests)
    readable = {}
    for place, request in enumerate(requests):
        try:
            readable[place] = inputs(request, contract), frozenset(request.requested_output_names())
        except errors.RouterError as error:
            answers[place] = error_response(error)
    try:
        found = function(list(readable.values()))
    except Exception as error:  # A bug of ours, as above; it can't be laid at the door of one request.
        logging.exception("a batch of %d requests", len(readable))
        found = [errors.EngineFailed(type(error).__name__)] * len(readable)
    for place, each in zip(readable, found, strict=True):
        answers[place] = error_response(each) if isinstance(each, errors.RouterError) else response(each)
    return answers


class Models:
    """Other models of this server, called in process (BLS). One per process, for one request at a time."""

    def call(self, model: str, tensors: Tensors, outputs: Sequence[str]) -> dict[str, Array]:
        """One response of a model that is not decoupled. Raises a RouterError."""
        for _ in range(CALL_ATTEMPTS):
            answer = self._request(model, tensors, outputs, "").exec()
            if not (answer.has_error() and DEAD_PROCESS in answer.error().message()):
                break  # else the request met a process that has died, and the next one may meet a living one
        if answer.has_error():
            self._check_ready(model)
            raise errors.from_message(answer.error().message())
        return _arrays(answer)

    def stream(
        self, model: str, tensors: Tensors, outputs: Sequence[str], request_id: str
    ) -> Generator[dict[str, Array], None, None]:
        """Each response of `model` in turn; empty ones are skipped. Raises a RouterError.

        Closing it waits for the engine's end, so `stop` the request first. One stream at a time per process: two can
        deadlock python_backend 24.10 for ever (its iterator's lock against the GIL).
        """
        self._check_ready(model)  # Before, not after: an error that opens a stream has no id, see ERRORS_AS_DATA.
        answers = self._request(model, tensors, outputs, request_id).exec(decoupled=True)
        ended = False
        try:
            for answer in answers:
                if answer.has_error():
                    raise errors.from_message(answer.error().message())
                arrays = _arrays(answer)
                if arrays:
                    yield arrays
            ended = True
        finally:
            if not ended:  # Left before its end, an iterator leaks, and the next stream may deadlock.
                for _ in answers:
                    pass
            _ended_streams.append(_never_freed(answers))

    def stop(self, model: str, request_id: str) -> None:
        """Ends a running stream of `model`; safe beside it, from another thread too."""
        self.call(ENGINE_CONTROL, {"engine": strings(model), "request_id": strings(request_id)}, ["stopped"])

    def _check_ready(self, model: str) -> None:
        if not pb_utils.is_model_ready(model):
            raise errors.NotLoaded(f"{model} is not loaded")

    def _request(self, model: str, tensors: Tensors, outputs: Sequence[str], request_id: str) -> Any:
        return pb_utils.InferenceRequest(
            model_name=model,
            inputs=[_tensors.of(name, array) for name, array in tensors.items()],
            requested_output_names=list(outputs),
            request_id=request_id,
            parameters={**_INTERNAL, **({ERRORS_AS_DATA: True} if request_id else {})},
        )


def _arrays(answer: Any) -> dict[str, Array]:
    return {tensor.name(): tensor.as_numpy() for tensor in answer.output_tensors()}


class Sender:
    """The way back to the client of one decoupled request: closed once, on whichever path comes first."""

    def __init__(self, request: Any) -> None:
        self._sender = request.get_response_sender()
        self._lock = threading.Lock()
        self.closed = False
        self.has_sent = False

    def is_cancelled(self) -> bool:
        """Whether the client has left. Never asks Triton after the end: that would end the whole server (2.51)."""
        with self._lock:
            if self.closed:
                return False
            ended = len(_ended_streams)
            cancelled = bool(self._sender.is_cancelled())
            if not cancelled:  # A yes may be remembered from before.
                _free(_ended_streams[:ended])
                del _ended_streams[:ended]
            return cancelled

    def send(self, tensors: Tensors) -> None:
        with self._lock:
            if not self.closed:
                self.has_sent = True
                self._sender.send(response(tensors))

    def finish(self, tensors: Tensors | None = None, error: errors.RouterError | None = None) -> None:
        """Sends the last response, FINAL on it. Later calls do nothing."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            last = error_response(error) if error else response(tensors or {})
            self._sender.send(last, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


class Metrics:
    """Counters, gauges and histograms on Triton's metrics port, one there for all processes of a name and labels."""

    def __init__(self) -> None:
        self._families: dict[str, Any] = {}
        self._metrics: dict[tuple[str, tuple[tuple[str, str], ...]], Any] = {}

    def declare(self, name: str, kind: str, description: str, buckets: Sequence[float] | None = None) -> None:
        """`kind` is COUNTER, GAUGE or HISTOGRAM; `buckets` are the upper bounds of a HISTOGRAM."""
        family = pb_utils.MetricFamily(name=name, description=description, kind=getattr(pb_utils.MetricFamily, kind))
        self._families[name] = (_never_freed(family), buckets)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        self._metric(name, labels).increment(amount)

    def show(self, name: str, **labels: str) -> None:
        self._metric(name, labels)

    def observe(self, name: str, value: float, **labels: str) -> None:
        self._metric(name, labels).observe(value)

    def set(self, name: str, value: float, **labels: str) -> None:
        self._metric(name, labels).set(value)

    def _metric(self, name: str, labels: dict[str, str]) -> Any:
        key = (name, tuple(sorted(labels.items())))
        if key not in self._metrics:
            family, buckets = self._families[name]
            bounds = {"buckets": list(buckets)} if buckets else {}  # pb_utils takes no tuple.
            # The server holds one metric for all processes of a name and labels, and frees it with the first of them: a
            # process that ends (of a model loaded anew in place, say) would leave the others a dangling pointer, and
            # the server a broken heap.
            self._metrics[key] = _never_freed(family.Metric(labels=labels, **bounds))
        return self._metrics[key]


def _never_freed(thing: Any) -> Any:
    """Keeps an object from its destructor, also at the interpreter's end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


def _free(things: Sequence[Any]) -> None:
    """Takes back `_never_freed`."""
    for thing in things:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(thing))


# Those that are kept are never freed: at the process's end, the shared memory that they lie in is gone first.
_tensors = KeptTensors(lambda name, array: pb_utils.Tensor(name, array), _never_freed)
