"""Is every model ready that an answer may need? For health checks: Triton's word for the router doesn't include the
models that the router calls, and /v2/health/ready says nothing about which one is missing.

    python -m scripts.server.readiness
    python -m scripts.server.readiness llm_router tensorrt_llm_small --http-port 8100
    python -m scripts.server.readiness --ready-port 8003     the models that this scripts/serve serves, by its own word
    python -m scripts.server.readiness --json

Exit status: 0 every model is ready; 1 one is not, or the server doesn't answer. scripts/serve --ready-port gives the
same over HTTP.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
from collections.abc import Iterable, Mapping, Sequence

from bls.paths import MODEL_REPOSITORY
from scripts.server import model_folders

READY = "ready"
NOT_READY = "not ready"
TIMEOUT_S = 2.0


def ask(host: str, port: int, models: Iterable[str], timeout_s: float = TIMEOUT_S) -> dict[str, str]:
    """READY, or why not, for each model. A server that doesn't answer is asked once, for the first of them."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    states, silence = {}, ""
    try:
        for model in models:
            if not silence:
                try:
                    states[model] = _state(connection, model)
                    continue
                except (OSError, http.client.HTTPException) as error:
                    silence = f"no answer from {host}:{port}: {_reason(error)}"
            states[model] = silence
    finally:
        connection.close()
    return states


def ask_supervisor(host: str, port: int, timeout_s: float = 2 * TIMEOUT_S) -> dict[str, str]:
    """The same for the models that a scripts/serve serves, from its --ready-port."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/ready")
        states: dict[str, str] = json.loads(connection.getresponse().read())["models"]
        return states
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        return {"scripts/serve": f"no answer from {host}:{port}: {_reason(error)}"}
    finally:
        connection.close()


def is_ready(states: Mapping[str, str]) -> bool:
    """Whether all of them are; no model at all is not ready."""
    return bool(states) and set(states.values()) == {READY}


def _state(connection: http.client.HTTPConnection, model: str) -> str:
    connection.request("GET", f"/v2/models/{model}/ready")
    answer = connection.getresponse()
    answer.read()
    return READY if answer.status == 200 else NOT_READY


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.server.readiness",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "models", nargs="*", metavar="model", help="models to ask about (default: all of model_repository)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="the server's address (default: 127.0.0.1)")
    parser.add_argument(
        "--http-port", type=int, default=8000, metavar="N", help="the server's HTTP port (default: 8000)"
    )
    parser.add_argument(
        "--ready-port", type=int, metavar="N", help="ask scripts/serve on this port, which knows what it serves"
    )
    parser.add_argument(
        "--json", action="store_true", help='print JSON: {"ready": true, "models": {"llm_router": "ready", ...}}'
    )
    options = parser.parse_args(arguments)
    if options.ready_port is not None:
        states = ask_supervisor(options.host, options.ready_port)
        states = {model: states.get(model, "not served") for model in options.models or states}
    else:
        states = ask(options.host, options.http_port, options.models or model_folders.names(MODEL_REPOSITORY))
    print(as_json(states) if options.json else _table(states))
    return 0 if is_ready(states) else 1


def as_json(states: Mapping[str, str]) -> str:
    return json.dumps({"ready": is_ready(states), "models": dict(states)})


def _table(states: Mapping[str, str]) -> str:
    width = max(map(len, states), default=0)
    return "\n".join(f"{model:{width}}  {state}" for model, state in states.items())


if __name__ == "__main__":
    sys.exit(main())
