"""The open loop of `bench goodput`, against a small server that answers as Triton does."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from scripts.bench import goodput, open_loop
from scripts.bench.open_loop import Sample, request_bytes

BUSY = "[BUSY] too many; retry after 1 s"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["text_input"] == "leave":
            self.close_connection = True
        elif body["text_input"] == "busy":
            self._whole(json.dumps({"error": BUSY}).encode())
        else:
            self._in_chunks([b'data: {"text_output":"a"}\n\n', b'data: {"finish_reason":"length"}\n\n'])

    def _whole(self, text):
        self.send_response(400)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _in_chunks(self, chunks):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in [*chunks, b""]:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))

    def log_message(self, *_):
        pass


@contextmanager
def answering():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_each_request_is_sent_and_noted_by_what_became_of_it():
    with answering() as host:
        texts = ["hello", "busy", "hello", "leave", "hello"]
        samples = open_loop.run(host, [request_bytes(host, {"text_input": text}) for text in texts], 1000.0)
    assert [sample.is_answered for sample in samples] == [True, False, True, False, True]
    assert samples[1].error == BUSY and samples[3].error == "the connection broke"
    assert all(sample.first_s <= sample.ended_s for sample in samples if sample.is_answered)


def test_only_answers_whose_first_token_came_in_time_are_good():
    samples = [Sample(0, first_s=0.1, ended_s=5), Sample(0, first_s=2.5, ended_s=3), Sample(0, None, 0.004, BUSY)]
    found = goodput.figures(samples, rate=3.0, in_time_s=2.0)
    assert (found["goodput"], found["answered"], found["turned_away"]) == (1.0, 2.0, 1)
    assert found["turned_away_ms"]["p50"] == pytest.approx(4)
