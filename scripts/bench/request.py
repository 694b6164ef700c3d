"""What the router's own Python costs a request outside its responses: before the first token, and after the last.

    python -m scripts.bench request [--requests 40] [--responses 8] [--profile]

As `bench response`, the router runs in this process, with stand-ins in the places of Triton, tokenizer and engine. The
classifier is left out, and so is what Triton's stub does with tensors, metrics and lines of the log. The parts are cut
at the doors to the other models; cold figures are taken with 64 MB written at each door, as if the model behind it had
computed. Times are of the thread's CPU. The last line is JSON.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import pstats
import time
from collections import defaultdict
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from bls.arrays import Tensors, boolean, int32, strings
from bls.engine_files import EngineFiles
from bls.paths import MODEL_REPOSITORY
from bls.reply import PieceTensors
from bls.request import parse
from bls.router import Router
from bls.routing.admission import Admission
from bls.routing.engine_health import EngineHealth
from bls.routing.route import Routing
from bls.routing.shared_table import SharedTable
from bls.safety.judge import PromptSafety
from bls.watcher import Watch
from bls.words.table import words_beside
from scripts.bench.response import OUTPUTS, NoMetrics, Replay, prompt_and_answer
from scripts.bench.sweeper import swept_memory

READ, CHECKED, DISPATCHED, FIRST, PIECE, LAST, ENDED = (
    "read: tensors to a request",
    "rules, until the tokenizer is asked",
    "decision, until the engine is asked",
    "first response to first piece",
    "a later response to its piece",
    "last response to the last piece",
    "after the last piece: log, metrics",
)


class Laps:
    """The thread's CPU time from one door to the next, by the name of the part that ends there."""

    def __init__(self, swept: Any) -> None:
        self._swept = swept
        self.us: dict[str, list[float]] = defaultdict(list)
        self._begin = 0

    def begin(self) -> None:
        """Another model has computed, and the router goes on."""
        if self._swept is not None:
            self._swept += 1
        self._begin = time.thread_time_ns()

    def end(self, part: str) -> None:
        self.us[part].append((time.thread_time_ns() - self._begin) / 1e3)


class Doors(Replay):
    """The other models of `bench response`, that end and begin laps."""

    def __init__(self, prompt_ids: Sequence[int], answer_ids: Sequence[int], tokens: int, laps: Laps) -> None:
        super().__init__(prompt_ids, answer_ids, tokens, None)
        self._laps = laps
        self.responses = 0

    def call(self, model: str, tensors: Tensors, outputs: Sequence[str]) -> Tensors:
        self._laps.end(CHECKED)
        found = super().call(model, tensors, outputs)
        self._laps.begin()
        return found

    def stream(
        self, model: str, tensors: Tensors, outputs: Sequence[str], request_id: str
    ) -> Generator[Tensors, None, None]:
        self._laps.end(DISPATCHED)
        for self.responses, response in enumerate(super().stream(model, tensors, outputs, request_id)):
            self._laps.begin()
            yield response


def measured(requests: int, responses: int, tokens: int, is_cold: bool) -> dict[str, list[float]]:
    """Microseconds of each part, once for each request, or for each response."""
    laps = Laps(swept_memory() if is_cold else None)
    prompt, prompt_ids, ids = prompt_and_answer(responses * tokens)
    doors = Doors(prompt_ids, ids, tokens, laps)
    words, table = words_beside(MODEL_REPOSITORY), SharedTable(None)
    routing = Routing(health=EngineHealth(table), admission=Admission(table, 40))
    router = Router(
        doors, EngineFiles(MODEL_REPOSITORY, doors), NoMetrics(), words, PromptSafety(words), False, routing
    )
    inputs = {"text_input": strings(prompt), "max_tokens": int32(len(ids)), "stream": boolean(True)}
    for _ in range(requests):
        laps.begin()
        request = parse(inputs, {}, OUTPUTS)
        made = PieceTensors(request.outputs)
        laps.end(READ)
        laps.begin()
        for reply in router.answer(request, Watch(lambda: False, 600, lambda outcome: None)):
            made.of(reply)
            laps.end(LAST if reply.finish_reason else PIECE if doors.responses else FIRST)
            if reply.finish_reason:
                laps.begin()
        laps.end(ENDED)
    return laps.us


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench request", description=__doc__)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--responses", type=int, default=8, help="of each request, at least 3")
    parser.add_argument("--tokens", type=int, default=3, help="of each response")
    parser.add_argument("--profile", action="store_true", help="show the functions, in a warm run")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args(arguments)
    if options.responses < 3:
        parser.error(f"--responses is {options.responses}; it must be at least 3")
    measured(3, options.responses, options.tokens, False)
    gc.collect()
    gc.freeze()
    runs = {
        label: measured(options.requests, options.responses, options.tokens, is_cold)
        for label, is_cold in (("warm", False), ("cold", True))
    }
    result: dict[str, dict[str, float]] = {}
    print(f"{'us of CPU, median':<40}" + "".join(f"{label:>9}" for label in runs))
    for part in (READ, CHECKED, DISPATCHED, FIRST, PIECE, LAST, ENDED):
        medians = {label: round(sorted(us[part])[len(us[part]) // 2], 1) for label, us in runs.items()}
        print(f"{part:<40}" + "".join(f"{us:9.1f}" for us in medians.values()))
        result[part] = medians
    if options.profile:
        with cProfile.Profile() as profile:
            measured(options.requests, options.responses, options.tokens, False)
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)
    if options.json:
        options.json.write_text(json.dumps(result) + "\n")
    print(json.dumps(result))
    return 0
