"""scripts/serve --close-engines: the engines' models answer the router, and no client that would go past its checks.

Each request of the router brings a word that is made at each start, and that the engines' models, as far as they are
Python, ask for. TensorRT-LLM's own backend asks for nothing, so there it is not possible.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

from bls.contract import LLAMA_7B, ROUTER
from bls.tiers import is_engine
from scripts.host.preflight import Refused
from scripts.server import model_folders
from scripts.server.server_options import flag_names
from scripts.server.tritonserver import Settings

KEY_BYTES = 32


def closed(settings: Settings, models: Sequence[str]) -> Settings:
    """The same server with closed engines; `models` are those of the repository. Raises Refused.

    The engine behind Triton's batcher is left out with its ensemble: an ensemble can't bring the word along.
    """
    if not settings.loads_explicitly:
        raise Refused("--close-engines needs --model-control-mode=explicit: it leaves models out")
    if LLAMA_7B in settings.models and "--load-model" in flag_names(settings.extra):
        raise Refused(f"--close-engines leaves {LLAMA_7B} out, which --load-model names")
    for model in filter(is_engine, settings.models):
        backend = model_folders.backend(model_folders.config(settings.repository / model, settings.config_name))
        if backend != "python":
            raise Refused(
                f"--close-engines is not possible with {model}: the backend {backend} answers whoever asks; "
                "docs/security.md has another way"
            )
    kept = settings.models
    if LLAMA_7B in models:
        kept = tuple(model_folders.without(settings.repository, list(kept), {LLAMA_7B}, settings.config_name))
    if not kept:
        raise Refused("--close-engines leaves no model to serve")
    if ROUTER not in settings.models:
        raise Refused("--close-engines closes engines to all but llm_router, which this server doesn't have")
    return replace(settings, models=kept, engine_key=secrets.token_hex(KEY_BYTES))
