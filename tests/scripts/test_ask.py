from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from scripts import ask

STREAM = [
    {"model_name": "llm_router", "text_output": "Pa", "num_input_tokens": 12, "num_output_tokens": 1},
    {"model_name": "llm_router", "text_output": "ris.", "num_output_tokens": 2, "finish_reason": "stop",
     "model": "tensorrt_llm_small", "reason": "default"},
]  # fmt: skip


@contextmanager
def fake_server(status: int, kind: str, answer: bytes) -> Iterator[tuple[int, list[dict]]]:
    """Answers every request alike; yields its port and the bodies that it got."""
    bodies: list[dict] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port, bodies
        finally:
            server.shutdown()
            thread.join()


def stream(events: list[dict]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def test_prints_the_text_as_it_comes_and_one_line_about_it(capsys):
    with fake_server(200, "text/event-stream", stream(STREAM)) as (port, bodies):
        assert ask.main([f"--port={port}", "--stop=END", "--seed=7", "Capital?"]) == 0
    said = capsys.readouterr()
    assert said.out == "Paris.\n"
    assert said.err.startswith("tensorrt_llm_small (default) | 12 tokens in, 3 out | first text after ")
    assert said.err.endswith(" ms | ended by: stop\n")
    (body,) = bodies
    assert body["text_input"] == "Capital?"
    assert (body["stop_words"], body["seed"], body["apply_chat_template"]) == (["END"], 7, True)
    assert "temperature" not in body


@pytest.mark.parametrize(
    ("status", "kind", "answer"),
    [
        (400, "application/json", b'{"error":"[BUSY] try again"}'),
        (200, "text/event-stream", stream([{"error": "[BUSY] try again"}])),
        (400, "text/event-stream", stream([{"error": "[BUSY] try again"}])),
    ],
)
def test_an_error_is_one_line_and_a_failure(capsys, status, kind, answer):
    with fake_server(status, kind, answer) as (port, _):
        assert ask.main([f"--port={port}", "Hi"]) == 1
    assert capsys.readouterr().err == "error: [BUSY] try again\n"


def test_a_server_that_is_not_there_is_said_with_the_way_to_start_it(capsys):
    with fake_server(200, "", b"") as (port, _):
        pass
    assert ask.main([f"--port={port}", "Hi"]) == 1
    said = capsys.readouterr().err
    assert "scripts/serve cpu" in said
    assert said.count("\n") == 1


def test_a_prompt_can_come_from_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
    with fake_server(200, "text/event-stream", stream(STREAM)) as (port, bodies):
        assert ask.main([f"--port={port}", "--raw", "-"]) == 0
    assert (bodies[0]["text_input"], bodies[0]["apply_chat_template"]) == ("from a pipe", False)
