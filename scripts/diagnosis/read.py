"""Reads a running tritonserver over HTTP, and where it runs on this machine its processes, its memory and its log."""

from __future__ import annotations

import http.client
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bls.contract import ROUTER
from bls.routing.policy_file import VARIABLE, path_of, version_of
from scripts.diagnosis import metrics_page, process
from scripts.diagnosis.metrics_page import BadPage, Page
from scripts.diagnosis.rules_models import NEVER_LOADED
from scripts.diagnosis.sample import READY, Counts, Model, Observation, Sample
from scripts.server import control_key
from scripts.server.control_key import ControlKey
from scripts.server.model_control import ControlFailed, ControlRefused, ModelControl, instances

PATIENCE_S = 10.0  # for one answer; a busy server takes its time
LOG_TAIL_BYTES = 1_000_000


class CannotRead(Exception):
    """The server, or a file of it, can't be read; the message is one line."""


class Log:
    """The end of the server's log as it is now, and later what has been added. Raises CannotRead."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.before: list[str] = []
        self._end = 0
        self.before = self._read(LOG_TAIL_BYTES)

    def since(self) -> list[str]:
        """The lines written after this was made; of a log that was begun anew, all."""
        return self._read(None)

    def _read(self, at_most: int | None) -> list[str]:
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                start = max(0, size - at_most) if at_most else self._end if self._end <= size else 0
                file.seek(start)
                self._end = size
                return file.read(size - start).decode(errors="replace").splitlines()
        except OSError as error:
            raise CannotRead(f"--log {self.path}: {error.strerror}") from None


class Reader:
    """A server at `host`. `metrics_url` is its metrics page, `log` its log where that isn't found by itself, `key_file`
    what opens its repository, else that beside the log.

    Raises CannotRead, as `sample` does, if it doesn't answer.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics_url: str,
        log: Path | None = None,
        key_file: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = f"{host}:{port}"
        self._metrics = urlsplit(metrics_url)
        self._clock = clock
        is_here = host in ("localhost", "127.0.0.1", "::1")
        self.process = process.find(port) if is_here else None
        path = log or (self.process.log if self.process else None)
        self.log = Log(path) if path else None
        self._control = ModelControl(host, port, _key(key_file, path))

    def sample(self) -> Sample:
        """Everything that changes, as it is now."""
        unix_s, at_s = self._clock(), time.monotonic()
        try:
            states = self._states()
            machine = self.process.machine() if self.process else None
            counts, last = self._counts()
            return Sample(at_s, unix_s, self._page(), states, counts, last, machine)
        except ControlRefused as refused:
            raise CannotRead(
                f"{self.name} asks for its control key: --key-file names the file that lies beside its log ({refused})"
            ) from None
        except ControlFailed as failed:
            raise CannotRead(f"no tritonserver answers on {self.name} (--host, --http-port): {failed}") from None
        except (KeyError, TypeError, AttributeError):
            raise CannotRead(f"what answers on {self.name} is not a tritonserver") from None

    def observation(self, samples: list[Sample]) -> Observation:
        """The looks so far, with what needs only one: configs of the models, and the log."""
        models = {}
        for name in samples[-1].states:
            with suppress(ControlFailed):  # it isn't loaded
                models[name] = model_of(self._control.config(name, PATIENCE_S))
        files = {name: self.process.config_file(name) for name in samples[-1].states} if self.process else {}
        log = self.log
        return Observation(
            tuple(samples),
            models,
            files,
            log.before if log else (),
            log.since() if log else (),
            has_log=log is not None,
            policy_version=self._policy_version(models),
        )

    def _policy_version(self, models: Mapping[str, Model]) -> str:
        """Of the file that the router's processes look at."""
        if ROUTER not in models or not self.process or not self.process.repository:
            return ""
        named = models[ROUTER].parameters.get("policy_file")
        path = path_of(self.process.repository, named or "", self.process.variable(VARIABLE))
        try:
            return version_of(path.read_bytes())
        except OSError:
            return ""

    def _states(self) -> dict[str, tuple[str, str]]:
        """Of several versions, one that is ready stands for the model."""
        states: dict[str, tuple[str, str]] = {}
        for entry in self._control.index(PATIENCE_S):
            state = entry.get("state", NEVER_LOADED), entry.get("reason", "")
            if states.get(entry["name"], ("", ""))[0] != READY:
                states[entry["name"]] = state
        return states

    def _counts(self) -> tuple[dict[str, Counts], dict[str, float]]:
        sums: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0])
        last: dict[str, float] = defaultdict(float)
        for model in self._control.statistics(PATIENCE_S):
            name, times = model["name"], ("compute_input", "compute_infer", "compute_output")
            busy_ns = sum(batch[each]["ns"] for batch in model.get("batch_stats", ()) for each in times)
            queue_ns = model["inference_stats"]["queue"]["ns"]
            found = (model["inference_count"], model["execution_count"], queue_ns / 1000, busy_ns / 1000)
            sums[name] = [old + new for old, new in zip(sums[name], found, strict=True)]
            last[name] = max(last[name], model["last_inference"] / 1000)
        return {name: Counts(int(a), int(b), c, d) for name, (a, b, c, d) in sums.items()}, dict(last)

    def _page(self) -> Page:
        url = self._metrics
        connection = http.client.HTTPConnection(url.hostname or "", url.port or 80, timeout=PATIENCE_S)
        try:
            connection.request("GET", url.path or "/metrics")
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
            if answer.status != 200:
                raise CannotRead(f"{url.geturl()} answers with HTTP status {answer.status}")
            return metrics_page.parse(text)
        except BadPage as bad:
            raise CannotRead(f"{url.geturl()} is not a page of metrics: {bad}") from None
        except (OSError, http.client.HTTPException) as error:
            raise CannotRead(f"{url.geturl()} can't be read: {str(error) or type(error).__name__}") from None
        finally:
            connection.close()


def _key(named: Path | None, log: Path | None) -> ControlKey | None:
    """Raises CannotRead for a file that was named. One beside the log need not be there, nor be this user's."""
    file = named or (control_key.file_beside(log) if log else None)
    if file is None:
        return None
    try:
        return control_key.read(file)
    except (OSError, ValueError) as error:
        if named:
            raise CannotRead(f"--key-file {named}: {getattr(error, 'strerror', None) or error}") from None
        return None


def model_of(config: dict[str, Any]) -> Model:
    """A model's config as the server's HTTP interface tells it."""
    batching = config.get("dynamic_batching", {})
    policy = batching.get("default_queue_policy", {})
    return Model(
        config["name"],
        backend=config.get("backend") or config.get("platform", ""),
        max_batch_size=config.get("max_batch_size", 0),
        has_batcher="dynamic_batching" in config,
        queue_delay_us=int(batching.get("max_queue_delay_microseconds", 0)),
        max_queue_size=policy.get("max_queue_size", 0),
        priority_levels=int(batching.get("priority_levels", 0)),
        queue_timeout_us=int(policy.get("default_timeout_microseconds", 0)),
        instances=instances(config),
        parameters={key: value["string_value"] for key, value in config.get("parameters", {}).items()},
    )
