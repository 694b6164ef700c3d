"""OpenVINO GenAI alone, for scripts.bench router: a line of JSON in, the streams' times out, until input ends."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from bls import manifest
from bls.paths import ROOT
from engines.openvino.pipeline import OpenVinoPipeline
from engines.worker import parameters
from engines.worker.generation import Generation
from scripts.bench.stream_load import Stream

CONFIG = ROOT / "model_repository" / "tensorrt_llm_small" / "configs" / "cpu.pbtxt"


def generate(
    pipeline: OpenVinoPipeline, prompts: list[list[int]], tokens: int, end_ids: tuple[int, ...]
) -> list[Stream]:
    """All prompts at once, greedily, exactly `tokens` each; each token is read in the step that made it."""
    streams = {}
    for key, prompt in enumerate(prompts):
        streams[key] = Stream(time.perf_counter())
        pipeline.add(key, Generation(tuple(prompt), tokens, frozenset(end_ids), min_tokens=tokens))
    while any(sum(stream.tokens) < tokens for stream in streams.values()):
        for produced in pipeline.step():
            if produced.ids:
                streams[produced.key].arrivals.append(time.perf_counter())
                streams[produced.key].tokens.append(len(produced.ids))
    return list(streams.values())


def load(folder: Path) -> tuple[OpenVinoPipeline, manifest.Manifest]:
    """The pipeline with the settings that it is served with."""
    config = text_format.Parse(CONFIG.read_text(), model_config_pb2.ModelConfig())
    settings = parameters.read({name: value.string_value for name, value in config.parameters.items()})
    built = manifest.load(folder)
    return OpenVinoPipeline(built, settings), built


def main(folder: Path) -> None:
    pipeline, built = load(folder)
    for line in sys.stdin:
        wanted = json.loads(line)
        streams = generate(pipeline, wanted["prompts"], wanted["tokens"], built.end_ids)
        print(json.dumps([asdict(stream) for stream in streams]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
