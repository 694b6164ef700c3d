"""Many requests at a running server: how fast, how late, how many good ones.

    python -m scripts.stress --requests 50                           all at once
    python -m scripts.stress --requests 200 --concurrency 32         32 at a time
    python -m scripts.stress --requests 200 --rate 4 --ttft-ms 500 --gap-ms 100 --picture stress.svg
    python -m scripts.stress --model llama_7b_ensemble --requests 64 --bucket 16

With --rate requests come at random times (Poisson, --seed), whether or not the server keeps up. The last line of output
is JSON. Exit status: 0 if every request was answered, 1 if one failed, 2 if nothing was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bls.contract import ROUTER
from scripts.bench.length_buckets import LengthBuckets
from scripts.client import Request, RequestFailed, TritonAsyncClient
from scripts.client.request import STREAMED, TEXT_TENSORS
from scripts.host.progress import Progress
from scripts.stress.picture import draw
from scripts.stress.plan import BadPlan, Planned, load_mix, plan
from scripts.stress.report import Objective, Sample, report, table

MIX = Path(__file__).with_name("mix.jsonl")
MAX_REQUESTS, MAX_SECONDS = 100_000, 3600.0
CUT_OFF = "CUT_OFF"  # the error of a request that --max-seconds ended


class StressTest:
    """Sends what is planned, `concurrency` at a time, each when it is due, and notes when what came back."""

    def __init__(
        self,
        client: TritonAsyncClient,
        model: str,
        concurrency: int,
        buckets: LengthBuckets | None = None,
        exact: bool = False,
        inputs: dict[str, Any] | None = None,
    ) -> None:
        self.samples: list[Sample] = []
        self._client = client
        self._model = model
        self._places = asyncio.Semaphore(concurrency)
        self._buckets = buckets
        self._exact = exact
        self._inputs = inputs or {}
        self._started = 0.0

    async def run(self, planned: Sequence[Planned], max_seconds: float) -> None:
        """Returns when each request has ended, or been ended after `max_seconds`."""
        self._started = time.perf_counter()
        sending = asyncio.create_task(self._send_all(planned))
        try:
            await asyncio.wait({sending}, timeout=max_seconds)
        finally:
            sending.cancel()
            await asyncio.wait({sending})
        if not sending.cancelled():
            sending.result()

    @property
    def ended(self) -> int:
        return sum(bool(sample.ended_s) for sample in self.samples)

    async def _send_all(self, planned: Sequence[Planned]) -> None:
        async with _Tasks() as tasks:
            for request in planned:
                await asyncio.sleep(max(0.0, request.due_s - self._now()))
                await self._places.acquire()
                # Without a time of its own a request is due when its turn comes.
                sample = Sample(request.prompt.kind, request.due_s or self._now())
                self.samples.append(sample)
                tasks.start(self._send(request, sample))

    async def _send(self, request: Planned, sample: Sample) -> None:
        prompt = request.prompt
        inputs = {**self._inputs, **({"min_tokens": prompt.max_tokens} if self._exact else {})}
        try:
            if self._buckets:
                await self._buckets.turn(prompt.max_tokens)
            sample.sent_s = self._now()
            async for piece in self._client.stream(Request(prompt.text, prompt.max_tokens, self._model, inputs)):
                if piece.text or piece.tokens:
                    sample.arrivals_s.append(self._now())
                if piece.finish_reason == "engine_error":  # half an answer
                    sample.error = piece.finish_reason.upper()
                if piece.tokens is not None:
                    sample.tokens = (sample.tokens or 0) + piece.tokens
            if self._exact and self._model not in STREAMED:  # It doesn't tell; but so many were asked for.
                sample.tokens = prompt.max_tokens
        except RequestFailed as failure:
            sample.error = failure.kind
        except asyncio.CancelledError:
            sample.error = CUT_OFF
            raise
        finally:
            sample.ended_s = self._now()
            self._places.release()

    def _now(self) -> float:
        return time.perf_counter() - self._started


class _Tasks:
    """Tasks that end before the block does; all are cancelled if the block is."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Any) -> None:
        self._tasks.add(asyncio.create_task(work))

    async def __aenter__(self) -> _Tasks:
        return self

    async def __aexit__(self, failure: object, *_: object) -> None:
        try:
            if failure is None:
                await asyncio.gather(*self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


async def stress(options: argparse.Namespace, planned: Sequence[Planned]) -> list[Sample]:
    """Runs the test with a line of progress."""
    concurrency = options.concurrency or options.requests
    buckets = LengthBuckets(options.bucket, options.bucket_wait_ms / 1000) if options.bucket else None
    inputs = {"apply_chat_template": True} if options.chat else {}
    progress = Progress()
    async with TritonAsyncClient(options.url, max_in_flight=concurrency, retries=options.retries) as client:
        test = StressTest(client, options.model, concurrency, buckets, options.exact, inputs)
        progress.step(f"{options.model} at {options.url}")
        running = asyncio.create_task(test.run(planned, options.max_seconds))
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=0.5)
                progress.status(f"{_bar(test.ended, len(planned))} {test.ended} of {len(planned)} ended")
        finally:
            running.cancel()
            await asyncio.wait({running})
        progress.done(f"{len(test.samples)} of {len(planned)} requests sent, {test.ended} ended")
        running.result()
    return test.samples


def _bar(done: int, count: int, width: int = 20) -> str:
    return f"[{'#' * (done * width // max(1, count)):<{width}}]"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.stress", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="localhost:8001", metavar="HOST:PORT", help="the server's gRPC address")
    parser.add_argument("--model", choices=list(TEXT_TENSORS), default=ROUTER)
    parser.add_argument(
        "--requests", type=_whole(MAX_REQUESTS), default=50, metavar="N", help="number of requests (default: 50)"
    )
    parser.add_argument(
        "--concurrency", type=_whole(MAX_REQUESTS), metavar="N", help="requests at a time (default: all of them)"
    )
    parser.add_argument(
        "--rate", type=_positive(1e5), metavar="R", help="mean requests per second, sent at random times"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of the random times and the choice of prompts"
    )
    parser.add_argument(
        "--mix", type=Path, default=MIX, metavar="FILE", help="file with prompts, such as scripts/stress/mix.jsonl"
    )
    parser.add_argument("--exact", action="store_true", help="make each answer exactly max_tokens long (by min_tokens)")
    parser.add_argument(
        "--raw",
        dest="chat",
        action="store_false",
        help="send the prompts as they are, not as messages in the chat template: a chat model may end at once",
    )
    parser.add_argument(
        "--bucket", type=_whole(1024), metavar="N", help="send N requests of similar max_tokens together"
    )
    parser.add_argument(
        "--bucket-wait-ms",
        type=_positive(60_000),
        default=200,
        metavar="MS",
        help="longest wait for a bucket to fill, in ms (default: 200)",
    )
    parser.add_argument(
        "--retries", type=int, default=0, metavar="N", help="retries after BUSY and UNAVAILABLE (default: 0)"
    )
    parser.add_argument(
        "--max-seconds",
        type=_positive(MAX_SECONDS),
        default=300,
        metavar="S",
        help="when to cut off what is still running (default: 300)",
    )
    parser.add_argument("--ttft-ms", type=_positive(1e9), metavar="MS", help="objective: time to the first token")
    parser.add_argument(
        "--gap-ms", type=_positive(1e9), metavar="MS", help="objective: mean time of each further token"
    )
    parser.add_argument("--latency-ms", type=_positive(1e9), metavar="MS", help="objective: the whole answer")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result to this file")
    parser.add_argument(
        "--picture",
        type=Path,
        metavar="FILE.svg",
        help="draw each request and the distribution of latencies in this file",
    )
    return parser.parse_args(arguments)


def _whole(most: int) -> Any:
    def number(text: str) -> int:
        value = int(text)
        if not 1 <= value <= most:
            raise argparse.ArgumentTypeError(f"{value} is not from 1 to {most}")
        return value

    return number


def _positive(most: float) -> Any:
    def number(text: str) -> float:
        value = float(text)
        if not 0 < value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most {most:g}")
        return value

    return number


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    try:
        planned = plan(load_mix(options.mix), options.requests, options.rate, options.seed)
    except BadPlan as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        samples = asyncio.run(stress(options, planned))
    except KeyboardInterrupt:
        return 130
    found = report(samples, Objective(options.ttft_ms, options.gap_ms, options.latency_ms), len(planned))
    found["settings"] = {
        name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()
    }
    print(table(found))
    if options.picture:
        options.picture.write_text(draw(samples, f"{options.model}: {options.requests} requests"), encoding="utf-8")
    text = json.dumps(found)
    if options.json:
        options.json.write_text(text + "\n")
    print(text)
    return 0 if found["answered"] == len(planned) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
