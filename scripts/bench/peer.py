"""A copy of NVIDIA's tensorrt_llm_bls that you have, and the router, before the same engine in alternating rounds.

    python -m scripts.bench peer --bls FOLDER [--instances 16,32] [--streams 32] [--rounds 5] [--tokens 64]

FOLDER is its model folder, config.pbtxt filled in (NVIDIA removed the model in 2026; older releases of
tensorrtllm_backend have it). It is served as tensorrt_llm_bls on tensorrt_llm_small and this repository's tokenizers,
with as many instances as you like to compare. All are asked for text_output alone, each answer --tokens long. The
router has everything on. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bls.arrays import boolean, int32, strings
from bls.contract import ROUTER, SMALL
from bls.paths import MODEL_REPOSITORY, ROOT
from scripts.bench.local_server import Server, running_server
from scripts.bench.rounds import Round, alternate, encode, prompts, ratios, served, summary, table
from scripts.bench.router import engine_request
from scripts.bench.stream_load import StreamRequest, output, tensor
from scripts.host import processes
from scripts.host.progress import Progress

PEER = "tensorrt_llm_bls"
_ENGINE_PARAMETER = re.compile(r'(key: "tensorrt_llm_model_name".*?string_value: ")[^"]*', re.DOTALL)
_NAME = re.compile(r"^name:.*\n", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\$\{\w+\}")


class BadFolder(Exception):
    """What --bls names can't be served; one line says why."""


def repository(folder: Path, bls: Path) -> Path:
    """The served models in `folder`, the peer among them. Raises BadFolder."""
    config = bls / "config.pbtxt"
    if not config.is_file() or not any(bls.glob("*/model.py")):
        raise BadFolder(f"{bls} holds no config.pbtxt with a 1/model.py beside it")
    text = config.read_text(encoding="utf-8")
    if left := _PLACEHOLDER.search(text):
        raise BadFolder(f"{config} still has {left[0]}: fill it in first, with NVIDIA's fill_template.py or by hand")
    models = folder / "model_repository"
    shutil.copytree(MODEL_REPOSITORY, models)
    shutil.copytree(bls, models / PEER)
    text = f'name: "{PEER}"\n' + _NAME.sub("", text)
    (models / PEER / "config.pbtxt").write_text(_ENGINE_PARAMETER.sub(rf"\g<1>{SMALL}", text), encoding="utf-8")
    shutil.copytree(ROOT / "engines" / "built", folder / "engines" / "built", copy_function=os.link)
    shutil.copytree(ROOT / "words", folder / "words")
    return models


def text_request(text: str, tokens: int, model: str) -> StreamRequest:
    """Each response that brings text counts as one token, until `counted` knows better."""
    inputs = [
        tensor("text_input", strings(text)),
        tensor("max_tokens", int32(tokens)),
        tensor("min_tokens", int32(tokens)),
        tensor("stream", boolean(True)),
    ]
    return StreamRequest(model, inputs, [output("text_output")], lambda result: int(_has_text(result)))


def _has_text(result: Any) -> bool:
    found = result.as_numpy("text_output")
    return found is not None and any(map(len, found.flat))


def counted(found: Round, tokens: int) -> Round:
    """The same, with the tokens of each answer: the last of its responses brings what the others have not."""
    for stream in found.streams:
        stream.tokens[-1] += tokens - sum(stream.tokens)
    return found


def compare(server: Server, instances: int, options: argparse.Namespace) -> dict[str, Any]:
    config = server.control.config(PEER)
    config["instance_group"] = [{**config["instance_group"][0], "count": instances}]
    server.control.load(PEER, config=config)
    texts = prompts(options.streams)
    ids = [encode(server.grpc_url, text) for text in texts]

    def texts_of(model: str) -> Callable[[], Round]:
        requests = [text_request(text, options.tokens, model) for text in texts]
        return lambda: counted(served(server, requests), options.tokens)

    kinds: dict[str, Callable[[], Round]] = {
        "engine": lambda: served(server, [engine_request(each, options.tokens) for each in ids]),
        "router": texts_of(ROUTER),
        "peer": texts_of(PEER),
    }
    label = f"{options.streams} streams, {instances} instances of {PEER}"
    results = alternate(kinds, options.rounds, Progress(), label)
    found: dict[str, Any] = {kind: summary(rounds) for kind, rounds in results.items()}
    for kind in ("router", "peer"):
        found[f"{kind}_over_engine"] = ratios(results[kind], results["engine"])
    sizes = processes.memory_bytes(server.server_pid)
    found["pss_mb"] = {
        model: {"processes": len(sizes.get(model, [])), "each": round(statistics.median(sizes[model]) / 1e6, 1)}
        for model in (ROUTER, PEER)
        if model in sizes
    }
    print(table(label, found), flush=True)
    print(f"memory (PSS), MB: {found['pss_mb']}", flush=True)
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench peer", description=__doc__)
    parser.add_argument("--bls", type=Path, required=True, metavar="FOLDER", help="the peer's model folder")
    parser.add_argument("--instances", default="16,32", help="of the peer, separated by commas")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64, help="length of each stream, in tokens")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        try:
            models = repository(Path(name), options.bls)
        except BadFolder as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        with running_server(Path(name), models) as server:
            counts = map(int, options.instances.split(","))
            result = {f"instances_{count}": compare(server, count, options) for count in counts}
    if options.json:
        options.json.write_text(json.dumps(result) + "\n")
    print(json.dumps(result))
    return 0
