"""The doctor's command and its reading, on a stand-in for tritonserver; tests/server/test_doctor.py has a real one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from scripts import doctor
from scripts.diagnosis import process
from scripts.diagnosis.read import CannotRead, Log, Reader, model_of
from scripts.diagnosis.sample import Counts

STATS = {"ns": 4_000_000}
MODEL = {
    "name": "a",
    "inference_count": 6,
    "execution_count": 3,
    "last_inference": 1796009858212,
    "inference_stats": {"queue": {"count": 6, "ns": 9_000_000}},
    "batch_stats": [
        {"batch_size": 1, "compute_input": STATS, "compute_infer": STATS, "compute_output": STATS},
        {"batch_size": 4, "compute_input": STATS, "compute_infer": STATS, "compute_output": STATS},
    ],
}
CONFIG = {
    "name": "a",
    "backend": "python",
    "max_batch_size": 8,
    "instance_group": [{"count": 2}],
    "parameters": {"gpt_model_type": {"string_value": "inflight_fused_batching"}},
    "dynamic_batching": {
        "max_queue_delay_microseconds": 500,
        "priority_levels": 3,
        "default_queue_policy": {"max_queue_size": 16, "default_timeout_microseconds": 30000000},
    },
}
ANSWERS = {
    "/v2/repository/index": [
        {"name": "a", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
        {"name": "a", "version": "2", "state": "READY"},
        {"name": "b"},
    ],
    "/v2/models/stats": {"model_stats": [MODEL, {**MODEL, "inference_count": 4, "last_inference": 0}]},
    "/v2/models/a/config": CONFIG,
    "/metrics": 'nv_inference_count{model="a",version="1"} 6\n',
}


@contextmanager
def standing_in(answers) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            answer = answers.get(self.path)
            self.send_response(200 if answer is not None else 400)
            self.end_headers()
            text = answer if isinstance(answer, str) else json.dumps(answer)
            self.wfile.write(text.encode())

        do_POST = do_GET

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()


def flags(port, *more):
    return ["--http-port", str(port), "--metrics-port", str(port), "--seconds", "0.2", "--every", "0.1", *more]


def refused(capsys, *arguments):
    assert doctor.main(list(arguments)) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    return error


def test_a_server_at_ease_is_healthy_and_what_was_not_looked_at_is_said(capsys):
    with standing_in(ANSWERS) as port:
        assert doctor.main(flags(port)) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        f"127.0.0.1:{port}: 1 models, 0 requests in 0.2 s",
        "nothing wrong was found",
        "not examined: processes, memory and /dev/shm, since the server runs on another machine or as another user",
        "not examined: the server's log; give --log FILE",
    ]
    assert "3 readings" in printed.err


def test_findings_are_told_with_figure_place_and_change(capsys, tmp_path):
    (tmp_path / "triton.log").write_text("E1130 x] CUDA out of memory. Tried to allocate 2 GiB\n")
    slow = {**CONFIG, "dynamic_batching": {"max_queue_delay_microseconds": 200_000_000}}
    with standing_in({**ANSWERS, "/v2/models/a/config": slow}) as port:
        assert doctor.main(flags(port, "--log", str(tmp_path / "triton.log"))) == 1
        out = capsys.readouterr().out
        assert doctor.main(flags(port, "--log", str(tmp_path / "triton.log"), "--json")) == 1
        report = json.loads(capsys.readouterr().out)
    assert out.index("FAILING  out_of_memory  the GPU's memory") < out.index("SLOW     queue_delay_long  a")
    assert "  seen   200 s\n" in out
    assert "  edit   a/config.pbtxt: dynamic_batching.max_queue_delay_microseconds\n" in out
    assert [each["name"] for each in report["findings"]] == ["out_of_memory", "queue_delay_long"]
    assert (report["healthy"], report["looks"], report["findings"][1]["weight"]) == (False, 3, "slow")


def test_what_can_not_be_read_is_told_in_one_line_and_by_the_exit_status(capsys, tmp_path):
    with standing_in(ANSWERS) as port:
        gone = port
        assert "--log" in refused(capsys, *flags(port, "--log", str(tmp_path / "none")))
    assert refused(capsys, *flags(gone)).startswith(
        f"error: no tritonserver answers on 127.0.0.1:{gone} (--host, --http-port): "
    )
    with standing_in({**ANSWERS, "/metrics": "<html>hello</html>"}) as port:
        assert refused(capsys, *flags(port)).endswith(
            "is not a page of metrics: line 1 is no metric: '<html>hello</html>'"
        )
    without = {path: answer for path, answer in ANSWERS.items() if path != "/metrics"}
    with standing_in(without) as port:
        assert refused(capsys, *flags(port)).endswith("/metrics answers with HTTP status 400")
    with standing_in({**ANSWERS, "/v2/models/stats": {"hello": 1}}) as port:
        assert refused(capsys, *flags(port)) == f"error: what answers on 127.0.0.1:{port} is not a tritonserver"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seconds", "0.5"], "--seconds is 0.5; it must be from --every (1) to 3600"),
        (["--seconds", "4000"], "--seconds is 4000; it must be"),
        (["--every", "0"], "--every is 0; it must be from 0.1 to 60"),
        (["--metrics-url", "https://a/metrics"], "--metrics-url is 'https://a/metrics'; it must be like http://"),
        (["--metrics-url", "http://a:b/metrics"], "--metrics-url is 'http://a:b/metrics'; it must be like"),
        (["--http-port", "99999"], "--http-port is 99999; it must be from 1 to 65535"),
        (["--seconds", "nan"], "--seconds is nan; it must be"),
    ],
)
def test_a_wrong_option_is_named_with_its_limit(capsys, arguments, said):
    with pytest.raises(SystemExit) as ended:
        doctor.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_versions_of_a_model_count_together():
    with standing_in(ANSWERS) as port:
        sample = Reader("127.0.0.1", port, f"http://127.0.0.1:{port}/metrics").sample()
    assert sample.states == {"a": ("READY", ""), "b": ("never loaded", "")}
    assert sample.counts == {"a": Counts(10, 6, 18_000.0, 48_000.0)}
    assert sample.last_inference_s == {"a": 1796009858.212}
    assert sample.page.get("nv_inference_count", model="a") == 6
    counts = sample.counts["a"]
    assert (counts.mean_batch, counts.mean_wait_ms, counts.mean_execution_ms) == (10 / 6, 1.8, 8.0)


def test_a_config_is_read_as_the_server_tells_it():
    model = model_of(CONFIG)
    assert (model.max_batch_size, model.has_batcher, model.queue_delay_us) == (8, True, 500)
    assert (model.instances, model.queue_places, model.queue_timeout_us) == (2, 48, 30_000_000)
    bare = model_of({"name": "e", "platform": "ensemble"})
    assert (bare.backend, bare.has_batcher, bare.queue_places) == ("ensemble", False, 0)


def test_a_log_is_read_from_where_it_was_and_from_its_beginning_if_it_began_anew(tmp_path):
    path = tmp_path / "log"
    path.write_text("one\ntwo\n")
    log = Log(path)
    assert log.before == ["one", "two"] and log.since() == []
    with path.open("a") as file:
        file.write("three\n")
    assert log.since() == ["three"]
    path.write_text("anew\n")
    assert log.since() == ["anew"]
    path.unlink()
    with pytest.raises(CannotRead, match="--log"):
        log.since()


def test_of_a_long_log_the_end_is_read(tmp_path):
    path = tmp_path / "log"
    path.write_text("x" * 99 + "\n" + "".join(f"{number:099}\n" for number in range(20_000)))
    before = Log(path).before
    assert len(before) == 10_000 and before[-1].endswith("19999")


def test_a_port_that_no_tritonserver_listens_on_has_no_process():
    with standing_in(ANSWERS) as port:
        assert process.find(port) is None
    assert process.find(port) is None


def test_an_address_of_six_groups_stands_in_brackets():
    assert doctor.parsed(["--host", "::1"]).metrics_url == "http://[::1]:8002/metrics"
