"""Asks a running tritonserver, over HTTP, about its models, and has it unload and load them."""

from __future__ import annotations

import http.client
import json
from collections import defaultdict
from collections.abc import Collection
from typing import Any

from scripts.server import grpc_load, instance_groups
from scripts.server.control_key import ControlKey

READY, UNAVAILABLE = "READY", "UNAVAILABLE"
LOAD_S = 600.0  # an engine of many GB from a slow disk
REPLACE_S = 120.0  # instances on the CPU, on a machine that is full
# A field of a config that no backend of this repository reads, but for which Triton loads a model anew. (A parameter
# would do too, but engines refuse those that they don't know.)
_UNREAD, _LOADS = "cc_model_filenames", "loaded_anew"


class ControlFailed(Exception):
    """The server did not do it; the message is one line."""


class ControlRefused(ControlFailed):
    """The server asks for another key."""


class ModelControl:
    """The model repository part of the server's HTTP interface. Every method raises ControlFailed.

    key: what opens it; ControlRefused where that is another one, or none. grpc_port: where there is one without TLS.
    """

    def __init__(self, host: str, port: int, key: ControlKey | None = None, grpc_port: int | None = None) -> None:
        self._host = host
        self._port = port
        self._headers = key.headers if key else {}
        self._grpc_headers = key.grpc_headers if key else {}
        self._grpc_port = grpc_port

    def states(self) -> dict[str, list[str]]:
        """The state of each version of each model that was ever loaded."""
        found: dict[str, list[str]] = defaultdict(list)
        for entry in self.index():
            if "state" in entry:
                found[entry["name"]].append(entry["state"])
        return found

    def index(self, timeout_s: float = 2) -> list[dict[str, str]]:
        """name, version, state and reason of each version of each model of the repository; no state: never loaded."""
        found: list[dict[str, str]] = self._ask("POST", "/v2/repository/index", timeout_s)
        return found

    def config(self, model: str, timeout_s: float = 2) -> dict[str, Any]:
        """A loaded model's config, as Triton completed it."""
        found: dict[str, Any] = self._ask("GET", f"/v2/models/{model}/config", timeout_s)
        return found

    def statistics(self, timeout_s: float = 2) -> list[dict[str, Any]]:
        """What Triton counts of each version of each loaded model, by its statistics extension."""
        found: list[dict[str, Any]] = self._ask("GET", "/v2/models/stats", timeout_s)["model_stats"]
        return found

    def instances(self, model: str) -> int:
        """How many instances a version of `model` has."""
        return instances(self.config(model))

    def unload(self, model: str, timeout_s: float) -> None:
        """Returns before the model is gone: its requests end first."""
        self._ask("POST", f"/v2/repository/models/{model}/unload", timeout_s)

    def load(self, model: str, timeout_s: float = LOAD_S, config: dict[str, Any] | None = None) -> None:
        """Returns once the model is loaded, with `config` in place of that of its folder."""
        body = json.dumps({"parameters": {"config": json.dumps(config)}}) if config else None
        self._ask("POST", f"/v2/repository/models/{model}/load", timeout_s, body)

    def load_anew(self, model: str) -> None:
        """Has a loaded model loaded beside itself, with the config that it has; returns once the new one serves.

        The old one serves until then, and on where the new one fails to load. Each instance gets a group of its own.
        """
        config = self.config(model)
        loads = int(config.get(_UNREAD, {}).get(_LOADS, 0))
        groups = instance_groups.single(config["instance_group"])
        changed = {**config, "instance_group": groups, _UNREAD: {_LOADS: str(loads + 1)}}
        self._load_beside_clients(model, changed, LOAD_S)

    def replace(self, model: str, instances: Collection[str]) -> bool:
        """Has others loaded in the place of these instances, by Triton's names, and the rest left alone. False where
        that can't be, and nothing was done."""
        config = self.config(model)
        groups = instance_groups.renewed(config["instance_group"], instances)
        if groups is None:
            return False
        self._load_beside_clients(model, {**config, "instance_group": groups}, REPLACE_S)
        return True

    def _load_beside_clients(self, model: str, config: dict[str, Any], timeout_s: float) -> None:
        """By gRPC where that can be: a load by HTTP holds up clients' connections, see scripts/server/grpc_load.py."""
        if self._grpc_port is not None:
            host = f"[{self._host}]" if ":" in self._host else self._host
            try:
                grpc_load.load(f"{host}:{self._grpc_port}", model, json.dumps(config), self._grpc_headers, timeout_s)
                return
            except grpc_load.NotAsked:
                pass
            except grpc_load.Refused as refused:
                raise ControlFailed(str(refused)) from None
        self.load(model, timeout_s, config)

    def _ask(self, method: str, path: str, timeout_s: float, body: str | None = None) -> Any:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        try:
            connection.request(method, path, body, self._headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
            if answer.status == 403:
                raise ControlRefused(_reason(text) or "HTTP status 403")
            if answer.status != 200:
                raise ControlFailed(_reason(text) or f"HTTP status {answer.status}")
            return json.loads(text or "{}")
        except TimeoutError:
            raise ControlFailed(f"no answer within {timeout_s:.0f} s") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ControlFailed(str(error) or type(error).__name__) from None
        finally:
            connection.close()


def instances(config: dict[str, Any]) -> int:
    """How many instances the groups of a config come to."""
    return sum(group.get("count", 1) * max(1, len(group.get("gpus", []))) for group in config.get("instance_group", []))


def _reason(text: str) -> str:
    try:
        reason = str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        reason = text
    return (reason.splitlines() or [""])[0].strip()
