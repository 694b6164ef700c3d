"""The command of client.py: one prompt streams to stdout, several are asked at once and answered in order."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from bls.contract import ROUTER
from scripts.client.client import DEADLINE_S, TritonAsyncClient
from scripts.client.failure import RequestFailed
from scripts.client.request import TEXT_TENSORS, Request


async def _ask(options: argparse.Namespace, requests: Sequence[Request]) -> int:
    """One prompt streams to stdout; of several each answer is a line, in order."""
    failed = 0
    pem = options.root_certificates
    credentials = grpc.ssl_channel_credentials(pem.read_bytes()) if pem else None
    async with TritonAsyncClient(options.url, credentials=credentials) as client:
        if len(requests) == 1:
            try:
                async for piece in client.stream(requests[0]):
                    print(piece.text, end="", flush=True)
                print()
            except RequestFailed as failure:
                failed = _tell(failure, options.url)
        else:
            for answer in await client.generate_all(requests):
                if isinstance(answer, RequestFailed):
                    failed = _tell(answer, options.url)
                else:
                    print(" ".join(answer.text.split()))
    return failed


def _tell(failure: RequestFailed, url: str) -> int:
    absent = "failed to connect" in failure.message
    reason = f"no server answers on {url}: start one with scripts/serve cpu, or give --url" if absent else failure
    print(f"error: {reason}", file=sys.stderr)
    return 1


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.client", description="Asks the running server over gRPC.")
    parser.add_argument(
        "prompts",
        nargs="+",
        metavar="prompt",
        help="one prompt is streamed; several are sent at once; - reads standard input",
    )
    parser.add_argument(
        "--url",
        default="localhost:8001",
        metavar="HOST:PORT",
        help="the server's gRPC address (default: localhost:8001)",
    )
    parser.add_argument(
        "--root-certificates",
        type=Path,
        metavar="FILE",
        help="speak TLS, with a server whose certificate is one of this PEM file or signed by one",
    )
    parser.add_argument("--model", choices=list(TEXT_TENSORS), default=ROUTER)
    parser.add_argument(
        "--max-tokens", type=int, default=256, metavar="N", help="longest answer, in tokens (default: 256)"
    )
    parser.add_argument("--temperature", type=float, metavar="T")
    parser.add_argument("--stop", action="append", metavar="TEXT", help="end the answer before TEXT; repeatable")
    parser.add_argument("--raw", action="store_true", help="send the prompt as it is, without the chat template")
    parser.add_argument(
        "--priority", type=int, default=0, metavar="1-3", help="1 is the highest; 0 stands for the server's default"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="S",
        help="time limit after which the server ends the answer with the text so far",
    )
    parser.add_argument(
        "--deadline", type=float, default=DEADLINE_S, metavar="S", help="when the client gives up (default: 600)"
    )
    options = parser.parse_args(arguments)
    inputs: dict[str, Any] = {} if options.temperature is None else {"temperature": options.temperature}
    if options.stop:
        inputs["stop_words"] = options.stop
    if options.model == ROUTER and not options.raw:
        inputs["apply_chat_template"] = True
    requests = [
        Request(
            sys.stdin.read() if prompt == "-" else prompt,
            options.max_tokens,
            options.model,
            inputs,
            options.priority,
            options.timeout,
            options.deadline,
        )
        for prompt in options.prompts
    ]
    try:
        return asyncio.run(_ask(options, requests))
    except OSError as error:
        print(f"error: --root-certificates {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
