"""Asks the running llm_router over HTTP and streams the answer to stdout; the route and the cost go to stderr.

scripts/ask "What is the capital of France?"
scripts/ask --raw --max-tokens 40 --stop "." "The capital of France is"
echo "Summarise this." | scripts/ask -
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO

MODEL = "llm_router"
SILENCE_S = 600  # the router ends a request long before; this is for a server that hangs


class AskFailed(Exception):
    """There is no (whole) answer; the message is one line."""


@dataclass
class Answer:
    """What the events of a stream said besides the text."""

    model: str = "?"
    reason: str = ""
    finish_reason: str = ""
    input_tokens: int | None = None
    output_tokens: int = 0
    first_token_s: float | None = None

    def add(self, event: dict[str, Any], elapsed_s: float) -> str:
        """Takes in one event and returns its text. Raises AskFailed if it is an error."""
        if "error" in event:
            raise AskFailed(str(event["error"]))
        self.model = event.get("model") or self.model
        self.reason = event.get("reason") or self.reason
        self.finish_reason = event.get("finish_reason") or self.finish_reason
        self.input_tokens = event.get("num_input_tokens", self.input_tokens)
        self.output_tokens += event.get("num_output_tokens", 0)
        text = str(event.get("text_output", ""))
        if text and self.first_token_s is None:
            self.first_token_s = elapsed_s
        return text

    def summary(self) -> str:
        """One line: who answered and why, what it cost, how it ended."""
        tokens = f"{'?' if self.input_tokens is None else self.input_tokens} tokens in, {self.output_tokens} out"
        first = "no text" if self.first_token_s is None else f"first text after {self.first_token_s * 1000:.0f} ms"
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.model}{why} | {tokens} | {first} | ended by: {self.finish_reason or '?'}"


def events(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON of each `data:` line of a server-sent event stream. Raises AskFailed for one that is broken."""
    for line in lines:
        if line.startswith(b"data:"):
            try:
                yield json.loads(line[len(b"data:") :])
            except ValueError:
                raise AskFailed(f"the server sent a broken event: {line[:80]!r}") from None


def body(options: argparse.Namespace, prompt: str) -> dict[str, Any]:
    """The request as /generate_stream takes it; an option that wasn't given is left to the server."""
    optional = ("temperature", "top_k", "top_p", "seed")
    given = {name: getattr(options, name) for name in optional if getattr(options, name) is not None}
    if options.stop:
        given["stop_words"] = options.stop
    return {
        "text_input": prompt,
        "max_tokens": options.max_tokens,
        "stream": True,
        "apply_chat_template": not options.raw,
        "return_route_info": True,
        "return_num_input_tokens": True,
        "return_num_output_tokens": True,
        **given,
    }


def ask(options: argparse.Namespace, prompt: str, output: TextIO) -> Answer:
    """Writes the answer to `output` as it comes. Raises AskFailed."""
    connection = http.client.HTTPConnection(options.host, options.port, timeout=SILENCE_S)
    started = time.monotonic()
    answer = Answer()
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"/v2/models/{MODEL}/generate_stream", json.dumps(body(options, prompt)), headers)
        response = connection.getresponse()
        if response.status != 200 and "event-stream" not in response.getheader("Content-Type", ""):
            raise AskFailed(_refusal(response))
        for event in events(response):
            output.write(answer.add(event, time.monotonic() - started))
            output.flush()
    except ConnectionRefusedError:
        raise AskFailed(
            f"no server answers on {options.host}:{options.port}: start one with scripts/serve cpu, or give --port"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise AskFailed(f"the connection broke: {str(error) or type(error).__name__}") from None
    finally:
        connection.close()
    return answer


def _refusal(response: http.client.HTTPResponse) -> str:
    text = response.read().decode(errors="replace").strip()
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {response.status}: {text or response.reason}"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/ask", description="Asks the running server and streams the answer.")
    parser.add_argument("prompt", help="the question; - reads it from standard input")
    parser.add_argument(
        "--max-tokens", type=int, default=256, metavar="N", help="longest answer, in tokens (default: 256)"
    )
    parser.add_argument("--temperature", type=float, metavar="T")
    parser.add_argument("--top-k", type=int, metavar="N")
    parser.add_argument("--top-p", type=float, metavar="P")
    parser.add_argument("--seed", type=int, metavar="N")
    parser.add_argument("--stop", action="append", metavar="TEXT", help="end the answer before TEXT; repeatable")
    parser.add_argument("--raw", action="store_true", help="send the prompt as it is, without the chat template")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="the server's --http-port (default: 8000)")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    try:
        answer = ask(options, prompt, sys.stdout)
    except AskFailed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    print(flush=True)
    print(answer.summary(), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
