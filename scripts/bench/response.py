"""What the router's own Python costs between two responses of an engine, with warm and with cold caches.

    python -m scripts.bench response [--streams 20] [--responses 60] [--json FILE]

The router runs in this process on this checkout's words, policy and tokenizer; in the places of Triton and the engine
stand a list of token ids and a sender that drops what it gets, so that neither is counted. An engine that computes
empties the caches between two responses: the cold figures are taken with 64 MB written in between, and are the ones
that a server pays. Times are of the thread's CPU. The last line is JSON.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bls import manifest
from bls.arrays import Tensors, boolean, int32, strings
from bls.contract import PREPROCESSING
from bls.engine_files import EngineFiles
from bls.paths import MODEL_REPOSITORY
from bls.reply import PieceTensors
from bls.request import parse
from bls.router import Router
from bls.safety.judge import PromptSafety
from bls.tokens import tokenizer_files
from bls.watcher import Watch
from bls.words.table import words_beside
from scripts.bench.sweeper import swept_memory

SENTENCES = Path(__file__).with_name("data") / "clean_sentences.txt"
OUTPUTS = frozenset(("text_output", "num_output_tokens"))


class Replay:
    """The other models: an engine that gives `responses` of `tokens` ids each, and notes the CPU time between them."""

    def __init__(self, prompt_ids: Sequence[int], answer_ids: Sequence[int], tokens: int, swept: Any) -> None:
        self._prompt = np.array([prompt_ids], dtype=np.int32)
        self._answer = [answer_ids[at : at + tokens] for at in range(0, len(answer_ids), tokens)]
        self._swept = swept
        self.spent_us: list[float] = []

    def call(self, model: str, tensors: Tensors, outputs: Sequence[str]) -> Tensors:
        assert model == PREPROCESSING, model
        no_words = np.zeros((1, 2, 0), dtype=np.int32)
        return {"INPUT_ID": self._prompt, "STOP_WORDS_IDS": no_words, "OUT_END_ID": int32(2), "OUT_PAD_ID": int32(2)}

    def stream(
        self, model: str, tensors: Tensors, outputs: Sequence[str], request_id: str
    ) -> Generator[Tensors, None, None]:
        for ids in self._answer:
            response = {"output_ids": np.array([[ids]], dtype=np.int32), "sequence_length": int32(len(ids))}
            if self._swept is not None:
                self._swept += 1
            begin = time.thread_time_ns()
            yield response
            self.spent_us.append((time.thread_time_ns() - begin) / 1e3)

    def stop(self, model: str, request_id: str) -> None:
        """Nothing to stop."""


class NoMetrics:
    def declare(self, name: str, kind: str, description: str, buckets: Sequence[float] | None = None) -> None: ...
    def add(self, name: str, amount: float = 1, **labels: str) -> None: ...
    def show(self, name: str, **labels: str) -> None: ...

    def set(self, name: str, value: float, **labels: str) -> None: ...
    def observe(self, name: str, value: float, **labels: str) -> None: ...


def prompt_and_answer(tokens: int) -> tuple[str, list[int], list[int]]:
    """A prompt, its ids, and so many ids of an answer."""
    tokenizer = tokenizer_files.load(manifest.load(manifest.built_folder(MODEL_REPOSITORY, "small")))
    lines = [line for line in SENTENCES.read_text("utf-8").split("\n") if line.isascii() and line[:1].isalpha()]
    return lines[0], list(tokenizer.encode(lines[0], False)), list(tokenizer.encode(" ".join(lines), False)[:tokens])


def measured(streams: int, responses: int, tokens: int, is_cold: bool) -> list[float]:
    prompt, prompt_ids, ids = prompt_and_answer(responses * tokens)
    replay = Replay(prompt_ids, ids, tokens, swept_memory() if is_cold else None)
    words = words_beside(MODEL_REPOSITORY)
    router = Router(replay, EngineFiles(MODEL_REPOSITORY, replay), NoMetrics(), words, PromptSafety(words))
    inputs = {"text_input": strings(prompt), "max_tokens": int32(len(ids) + 1), "stream": boolean(True)}
    for _ in range(streams):
        request = parse(inputs, {}, OUTPUTS)
        made = PieceTensors(request.outputs)
        for reply in router.answer(request, Watch(lambda: False, 600, lambda outcome: None)):
            made.of(reply)
    return replay.spent_us


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench response", description=__doc__)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--responses", type=int, default=60, help="of each stream")
    parser.add_argument("--tokens", type=int, default=3, help="of each response")
    parser.add_argument("--profile", action="store_true", help="show the functions, in a warm run")
    options = parser.parse_args(arguments)
    result = {}
    for label, is_cold in (("warm", False), ("cold", True)):
        spent = sorted(measured(options.streams, options.responses, options.tokens, is_cold))
        found = {f"us_p{share}": round(spent[len(spent) * share // 100], 1) for share in (10, 50, 90)}
        print(f"{label:<6}" + "".join(f"{name.removeprefix('us_'):>6}{us:8.1f} us" for name, us in found.items()))
        result[label] = found
    if options.profile:
        with cProfile.Profile() as profile:
            measured(options.streams, options.responses, options.tokens, False)
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)
    print(json.dumps(result))
    return 0
