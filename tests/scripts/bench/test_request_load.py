"""scripts/bench/request_load.py against a small HTTP server of the standard library."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from bls.arrays import strings
from scripts.bench import request_load


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        length = int(self.headers["Inference-Header-Content-Length"])
        self.server.seen.append((self.path, json.loads(body[:length]), body[length:]))
        answer = b"x" * 100_000
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


@contextmanager
def serving(status=200):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.status, server.seen = status, []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server, f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_request_carries_numbers_as_bytes_and_texts_as_json():
    ids = np.array([[1, 2]], np.int64)
    request = request_load.request_bytes("h:1", "m", {"ids": ids, "text": strings("é")}, ["out"])
    head, _, body = request.partition(b"\r\n\r\n")
    length = int(head.partition(b"Inference-Header-Content-Length: ")[2].split(b"\r\n")[0])
    assert head.startswith(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: h:1\r\n")
    assert body[length:] == ids.tobytes()
    assert json.loads(body[:length]) == {
        "inputs": [
            {"name": "ids", "shape": [1, 2], "datatype": "INT64", "parameters": {"binary_data_size": 16}},
            {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["é"]},
        ],
        "outputs": [{"name": "out", "parameters": {"binary_data": True}}],
    }


def test_each_connection_sends_its_next_request_when_the_last_is_answered():
    with serving() as (server, host):
        requests = [request_load.request_bytes(host, name, {}, []) for name in ("a", "b")]
        load = request_load.run(host, requests, connections=3, warm_up_s=0, measured_s=0.3)
        assert load.per_second > 0 and 0 < load.latency_ms(50) <= load.latency_ms(99)
        paths = [path for path, _, _ in server.seen]
        assert abs(paths.count("/v2/models/a/infer") - paths.count("/v2/models/b/infer")) <= 1
        assert 0 <= len(paths) - len(load.latencies_s) <= 3  # those in flight at the end don't count


def test_an_answer_that_is_no_success_ends_it():
    with serving(status=400) as (_, host), pytest.raises(RuntimeError, match="400 Bad Request: xxx"):
        request_load.run(host, [request_load.request_bytes(host, "a", {}, [])], 1, 0, 0.2)
