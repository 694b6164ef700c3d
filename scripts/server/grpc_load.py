"""Has a server load a model over gRPC: a child of scripts/serve, whose own Python may lack grpc.

    echo '{"target": "localhost:8001", "model": "m", "config": "{...}", "headers": [["name", "key"]]}' |
        python -m scripts.server.grpc_load

tritonserver 2.51 loads in the thread that takes the request. Over HTTP that thread has connections of clients too, an
eighth of them or, since idle threads are chosen in a fixed order, most of them: their answers stop until the model is
loaded. Over gRPC it is the thread of health, metadata and repository; requests to models have others.

Exit status: 0 loaded; 1 the server refused, and stdout says why in one line; 2 it could not be asked so.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bls.paths import ROOT

LOADED, REFUSED, NOT_ASKED = 0, 1, 2
PYTHON = ROOT / ".venv" / "bin" / "python"
METHOD = "/inference.GRPCInferenceService/RepositoryModelLoad"
# Fields of RepositoryModelLoadRequest, of an entry of its map of parameters, and of ModelRepositoryParameter.
_MODEL, _PARAMETERS, _KEY, _VALUE, _STRING = 2, 3, 1, 2, 3


class NotAsked(Exception):
    """There is no way to ask by gRPC: another one may do."""


class Refused(Exception):
    """The message is one line."""


def load(target: str, model: str, config: str, headers: Mapping[str, str], timeout_s: float) -> None:
    """Returns once the model is loaded with that config. Raises NotAsked, or Refused, also for no end in time."""
    given = {"target": target, "model": model, "config": config, "headers": list(headers.items())}
    try:
        done = subprocess.run(
            [PYTHON if PYTHON.exists() else Path(sys.executable), "-m", "scripts.server.grpc_load"],
            input=json.dumps(given),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise Refused(f"no answer within {timeout_s:.0f} s") from None
    except OSError as error:
        raise NotAsked(error.strerror) from None
    if done.returncode == REFUSED:
        raise Refused(done.stdout.strip())
    if done.returncode != LOADED:
        raise NotAsked


def message(model: str, config: str) -> bytes:
    """A RepositoryModelLoadRequest as protobuf writes it."""
    parameter = _field(_KEY, b"config") + _field(_VALUE, _field(_STRING, config.encode()))
    return _field(_MODEL, model.encode()) + _field(_PARAMETERS, parameter)


def _field(number: int, content: bytes) -> bytes:
    size, length = b"", len(content)
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + content


def main() -> int:
    try:
        import grpc
    except ImportError:
        return NOT_ASKED
    given = json.load(sys.stdin)
    with grpc.insecure_channel(given["target"]) as channel:
        try:
            call = channel.unary_unary(METHOD)
            call(message(given["model"], given["config"]), metadata=[tuple(pair) for pair in given["headers"]])
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED):
                return NOT_ASKED  # It asks for another key, or nobody listens.
            print((error.details() or error.code().name).splitlines()[0])
            return REFUSED
    return LOADED


if __name__ == "__main__":
    sys.exit(main())
