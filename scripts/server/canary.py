"""Notices a server that says "ready" and answers nothing.

When a process of a python model dies while it answers, tritonserver 2.51 may hang: every request to every model waits
for ever, or every request to one engine, or all of gRPC, while readiness stays 200. So requests that cost next to
nothing are sent: one to the tokenizer, which any server answers in milliseconds, one over gRPC that needs no model,
and, after a process has died, one to each engine for one token.

No answer is a verdict only where the model's own counters stand still: a busy server is slow, and moves. And it is one
soon only where the server says at once that it lives: else the whole machine may be what is slow, and a server that is
ended by mistake costs more than one that is ended late.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from bls.tiers import engine_models, is_engine
from scripts.server import grpc_probe
from scripts.server.tritonserver import Settings

CALM_S = 5.0  # between two rounds while all is well
HURRY_S = 0.5
ALARM_S = 30.0  # so long after a process was lost rounds follow one another and engines are asked too
ANSWER_S = 3.0  # what an answer may take
PROMPT_S = (
    0.5  # what it takes a server to say that it lives, which asks no model, where the machine is not what is slow
)
_BLIND = (
    3  # times as many strikes where it can't be told whether the server hangs or the machine is slow: half a minute
)
TOKENIZER = "preprocessing"
GRPC = "gRPC"
ENGINE_KEY = "llm_router_internal_key"  # of bls/triton_io.py: the parameter that closed engines ask for
PROGRESS = ("nv_inference_request_success", "nv_inference_request_failure", "nv_trt_llm_kv_cache_block_metrics")

_TOKENIZER_BODY = {
    "inputs": [
        {"name": "QUERY", "shape": [1, 1], "datatype": "BYTES", "data": ["a"]},
        {"name": "REQUEST_OUTPUT_LEN", "shape": [1, 1], "datatype": "INT32", "data": [1]},
    ],
    "outputs": [{"name": "REQUEST_INPUT_LEN"}],
}
_ENGINE_BODY = {"input_ids": [1, 2], "input_lengths": 2, "request_output_len": 1}
# For one whose engine is elsewhere: whether its process answers, whatever becomes of those servers.
_REMOTE_BODY = {**_ENGINE_BODY, "stop": True}


@dataclass(frozen=True)
class Probe:
    """Something that any healthy server answers at once, if only with an error.

    ask: whether anything comes back within so many seconds; OSError where there is no server.
    model: whose counters tell whether it moves; "" for all of them, None where nothing tells.
    strikes: so many in a row without an answer within `answer_s` are a verdict; many_strikes: where none was lost.
    """

    name: str
    ask: Callable[[float], bool]
    model: str | None
    strikes: int
    many_strikes: int = 3
    answer_s: float = ANSWER_S


def probes(settings: Settings) -> list[Probe]:
    """For the server as a whole, for gRPC, and for each engine, as far as the server has them."""
    found = []
    if TOKENIZER in settings.models:
        found.append(
            Probe(TOKENIZER, _http(settings, TOKENIZER, "infer", _TOKENIZER_BODY), "", strikes=2, answer_s=1.5)
        )
    if settings.plain_grpc_port is not None:
        grpc = partial(grpc_probe.is_answered, settings.local_host, settings.plain_grpc_port)
        found.append(Probe(GRPC, grpc, None, strikes=4))  # nothing tells whether it moves
    key = {ENGINE_KEY: settings.engine_key} if settings.engine_key else {}
    for engine in set(engine_models(settings.repository)) & set(settings.models):
        ask = _http(settings, engine, "generate", {**(_REMOTE_BODY if settings.remote else _ENGINE_BODY), **key})
        found.append(Probe(engine, ask, model=engine, strikes=4))  # a busy engine takes its time
    return found


def liveness(settings: Settings) -> Callable[[], bool]:
    """Whether the server says in time that it lives."""

    def ask() -> bool:
        began = time.monotonic()
        connection = http.client.HTTPConnection(settings.local_host, settings.http_port, timeout=PROMPT_S)
        try:
            connection.request("GET", "/v2/health/live")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return time.monotonic() - began < PROMPT_S

    return ask


def _http(settings: Settings, model: str, verb: str, body: object) -> Callable[[float], bool]:
    def ask(timeout_s: float) -> bool:
        connection = http.client.HTTPConnection(settings.local_host, settings.http_port, timeout=timeout_s)
        try:
            connection.request("POST", f"/v2/models/{model}/{verb}", json.dumps(body))
            connection.getresponse().read()
        except TimeoutError:
            return False
        except http.client.HTTPException:
            return True
        finally:
            connection.close()
        return True

    return ask


class Canary:
    """Asks a server from a thread of its own. `hung` names the probes that get no answer.

    metrics: the server's metrics page; "" where it gives none. is_prompt: whether it says at once that it lives.
    """

    def __init__(
        self, probes: Sequence[Probe], metrics: Callable[[], str], is_prompt: Callable[[], bool] = lambda: True
    ) -> None:
        self.hung: frozenset[str] = frozenset()
        self._probes = probes
        self._metrics = metrics
        self._is_prompt = is_prompt
        self._strikes: Counter[str] = Counter()
        self._alarmed_at = float("-inf")
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="canary", daemon=True)

    @property
    def is_whole_server_hung(self) -> bool:
        return TOKENIZER in self.hung

    def start(self) -> None:
        if self._probes:
            self._thread.start()

    def stop(self) -> None:
        """It asks nothing more; a round that runs ends by itself."""
        self._is_stopping = True
        self._wake.set()

    def alarm(self) -> None:
        """A process was lost."""
        self._alarmed_at = time.monotonic()
        self._wake.set()

    def round(self, alarmed: bool) -> None:
        """Asks once and takes note. Engines are asked only after an alarm: a token costs something."""
        asked = [probe for probe in self._probes if alarmed or self._strikes[probe.name] or not is_engine(probe.name)]
        before = progress(self._metrics())
        is_clear = bool(before) and self._is_prompt()
        with ThreadPoolExecutor(len(self._probes)) as pool:
            answered = list(
                pool.map(lambda probe: _is_answered(probe, probe.answer_s if alarmed and is_clear else ANSWER_S), asked)
            )
        after = progress(self._metrics())
        is_clear = is_clear and bool(after) and self._is_prompt()
        hung = set()
        for probe, is_answered in zip(asked, answered, strict=True):
            is_moving = probe.model is not None and _of(before, probe.model) != _of(after, probe.model)
            self._strikes[probe.name] = 0 if is_answered or is_moving else self._strikes[probe.name] + 1
            if self._strikes[probe.name] >= _verdict(probe, alarmed, is_clear):
                hung.add(probe.name)
        self.hung = frozenset(hung)

    def _run(self) -> None:
        while not self._is_stopping:
            self._wake.clear()
            is_alarmed = time.monotonic() - self._alarmed_at < ALARM_S
            self.round(is_alarmed)
            is_in_doubt = is_alarmed or any(self._strikes.values())
            self._wake.wait(HURRY_S if is_in_doubt else CALM_S)


def _verdict(probe: Probe, alarmed: bool, is_clear: bool) -> int:
    """So many strikes are one."""
    if not is_clear:
        return _BLIND * max(probe.strikes, probe.many_strikes)
    return probe.strikes if alarmed else probe.many_strikes


def _is_answered(probe: Probe, timeout_s: float) -> bool:
    """A refused connection is an answer: that server is gone, not hung."""
    try:
        return probe.ask(timeout_s)
    except TimeoutError:
        return False
    except OSError:
        return True


def _of(moved: Mapping[str, str], model: str) -> object:
    return moved.get(model) if model else moved


def progress(metrics: str) -> Mapping[str, str]:
    """By model, what the page says that it has done so far."""
    found: dict[str, str] = {}
    for line in metrics.splitlines():
        if line.startswith(PROGRESS):
            model = line.partition('model="')[2].partition('"')[0]
            found[model] = found.get(model, "") + line.rpartition(" ")[2] + " "
    return found
