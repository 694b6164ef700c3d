"""The doctor on a real server: nothing to say of one that is well, and each fault of one that isn't, as it happens."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import tritonclient.grpc as grpc

from bls.contract import LARGE, PREPROCESSING, ROUTER, SMALL
from scripts import doctor
from scripts.diagnosis.read import Reader
from scripts.diagnosis.rules import judge
from scripts.host import processes
from tests.server import doctor_repository, echo_repository
from tests.server.clients import control, events_of, eventually, generate, inputs_of, post
from tests.server.doctor_repository import POLICY, TENSORS, TOO_LARGE, write
from tests.server.serving import running_server

pytestmark = pytest.mark.server

ROUTERS = 4
TEXT = "one two three four"
LONG = "The harbour of the old town is small. " * 1500
ENDLESS = 1000 * echo_repository.ENDLESS
FAILS_LATER = 1000 * echo_repository.FAILS_LATER


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doctor")
    repository = doctor_repository.make(folder, ROUTERS)
    with running_server(folder, repository) as running:
        yield running


@pytest.fixture
def examine(server, capsys):
    """`examine(seconds)`: the report's JSON, and the exit status that fits it."""

    def run(seconds=2.0, *flags):
        ports = [server.http_url.rpartition(":")[2], re.findall(r":(\d+)/", server.metrics_url)[0]]
        known = ["--http-port", ports[0], "--metrics-port", ports[1], "--every", "0.25", "--seconds", str(seconds)]
        status = doctor.main([*known, "--json", *flags])
        report = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert status == (1 if report["findings"] else 0)
        print(json.dumps(report["findings"], indent=1))
        return report

    return run


def found(report):
    return {finding["name"]: finding for finding in report["findings"]}


@pytest.fixture
def comes_to_find(examine):
    """`comes_to_find(*names)`: the report that has these findings. On a machine that stands still for a moment nothing
    happens in 2.5 s, so it is asked for until then."""

    def run(*names):
        reports = []
        eventually(lambda: reports.append(examine(2.5)) or set(names) <= found(reports[-1]).keys(), 90)
        return reports[-1]

    return run


@contextmanager
def meanwhile(work, clients, pause_s=0.0):
    """So many clients that do `work(number)` again and again, each a pause later than the one before it."""
    ended = threading.Event()

    def run(number):
        if not ended.wait(number * pause_s):
            while not ended.is_set():
                work(number)

    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(run, number) for number in range(clients)]
        try:
            yield
        finally:
            ended.set()
    for each in running:
        each.result()


def stream(server, tokens=20, step_ms=5, **given):
    return events_of(server, **{"text_input": TEXT, "max_tokens": tokens, "seed": ENDLESS + step_ms, **given})


@contextmanager
def tokenizing(server, text, clients, while_it_holds=lambda: True):
    inputs = inputs_of(QUERY=text, REQUEST_OUTPUT_LEN=8)
    output = [grpc.InferRequestedOutput("REQUEST_INPUT_LEN")]
    with grpc.InferenceServerClient(server.grpc_url) as client:

        def work(_):
            if while_it_holds():
                client.infer(PREPROCESSING, inputs, outputs=output)
            else:
                time.sleep(0.02)

        with meanwhile(work, clients):
            yield


def sleeper(server, model, work_ms=5):
    return generate(server, model, work_ms=work_ms)


def test_a_healthy_server_under_a_light_load_has_no_finding(server, examine):
    with meanwhile(lambda _: stream(server), 2):
        report = examine()
    assert report["findings"] == [] and report["healthy"]
    assert report["requests"] > 0


def test_an_overloaded_router_is_told_by_the_signs_that_last(server, comes_to_find):
    # Long ones: between two requests a process may be idle for half a second, though others wait (Triton 2.51).
    with meanwhile(lambda _: generate(server, ROUTER, text_input=TEXT, max_tokens=60, seed=ENDLESS + 30), 30, 0.07):
        # Not "queue_growing": one that is full grows no more.
        report = comes_to_find("too_few_routers", "queue_full", "rejections")
    said = found(report)
    # By what else this machine has to do.
    assert said.keys() & {"low_throughput", "hardware_is_the_limit"} or 0.5 <= report["busy"] < 0.9


def test_a_lone_delay_and_batches_of_one_and_busy_tokenizers(server, comes_to_find):
    with (
        meanwhile(lambda _: sleeper(server, "held_back"), 1),
        meanwhile(lambda _: sleeper(server, "text_tokenizer", 40), 4),
    ):
        report = comes_to_find("queue_delay_useless", "batches_of_one", "too_few_tokenizers")
    said = found(report)
    assert said["queue_delay_useless"]["subject"] == "held_back"
    assert said["batches_of_one"]["subject"] == said["too_few_tokenizers"]["subject"] == "text_tokenizer"


def test_a_small_cache_holds_requests_back(server, comes_to_find):
    with meanwhile(lambda _: stream(server, 70, tier="large"), 6):
        report = comes_to_find("kv_cache_reserved")
    assert found(report)["kv_cache_reserved"]["subject"] == LARGE


def test_requests_that_fail_open_a_breaker_and_a_policy_that_is_refused(server, examine):
    policy = server.repository.parent / "policy.py"
    with meanwhile(lambda _: stream(server, 5, 0, seed=FAILS_LATER), 2):
        policy.write_text("nonsense(")
        report = examine(2.5)
    said = found(report)
    assert said["requests_fail"]["subject"] == "engine_error"
    assert said["breaker_open"]["subject"] == SMALL
    assert said["policy_refused"]["file"] == f"{policy}:1"
    # Seen by the log alone, later too, until a good one is taken.
    assert found(examine(0.5))["policy_refused"]["file"] == f"{policy}:1"
    policy.write_text(POLICY)
    eventually(lambda: "policy_refused" not in found(examine(0.5)))


def test_an_answer_of_ten_that_begins_late_is_a_long_tail(server, examine):
    lates = itertools.count()
    with meanwhile(lambda _: stream(server, 1, 900 if next(lates) % 20 == 0 else 1), 3):
        report = examine(2.5)
    assert found(report)["long_tail"]["subject"] == SMALL


def test_a_child_that_is_unloaded_is_told_and_an_ensemble_that_went_with_its_model(server, examine):
    for model in (SMALL, "held_back"):
        control(server, model, "unload")
    said = {each["subject"]: each for each in examine(0.5)["findings"]}
    assert said[SMALL]["name"] == "child_not_ready"
    assert said[SMALL]["figure"] == "UNAVAILABLE: unloaded, while llm_router is ready"
    assert said[SMALL]["file"] == str(server.repository / SMALL / "config.pbtxt")
    assert said["held_back"]["name"] == said["chain"]["name"] == "model_unloaded"
    for model in (SMALL, "held_back"):
        control(server, model, "load")


def test_a_clock_that_differs_and_a_page_that_is_a_copy(server, tmp_path):
    """Those of this machine are right, so the doctor gets a wrong clock, and the page of a moment before."""
    copy = urllib.request.urlopen(server.metrics_url).read()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(copy)

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.01,), daemon=True).start()
        port = int(server.http_url.rpartition(":")[2])
        url = f"http://127.0.0.1:{proxy.server_port}/metrics"
        reader = Reader("127.0.0.1", port, url, clock=lambda: time.time() - 3600)
        with meanwhile(lambda _: sleeper(server, "text_tokenizer"), 1):
            seen = doctor.watch(reader, 1.0, 0.25)
        proxy.shutdown()
    said = {finding.name: finding for finding in judge(seen)[0]}
    assert re.match(r"the server's timestamps are 3(599|600) s ahead", said["clock_skew"].figure)
    assert "metrics_frozen" in said


def test_shared_memory_that_fills_is_told_with_the_time_that_is_left(server, examine):
    file = Path("/dev/shm") / f"doctor_test_{os.getpid()}"
    free = os.statvfs("/dev/shm").f_bavail * os.statvfs("/dev/shm").f_frsize
    # In half a second so much that it would be full within the hour, and with a little it isn't.
    timer = threading.Timer(0.25, lambda: file.write_bytes(bytes(max(32 << 20, free // 3600))))
    timer.start()
    try:
        said = found(examine(0.5))
    finally:
        timer.join()
        file.unlink()
    assert "MB more than" in said["shm_nearly_full"]["figure"]


def test_a_process_that_died_and_is_replaced(server):
    sleeper(server, "text_tokenizer")
    (stub,) = [pid for pid in processes.tree(server.server_pid) if processes.stub_model(pid) == "text_tokenizer"]
    reader = Reader("127.0.0.1", int(server.http_url.rpartition(":")[2]), server.metrics_url)
    looks = [reader.sample()]
    os.kill(stub, signal.SIGKILL)

    def is_replaced():  # by scripts/serve, which loads the model anew beside the dead process
        looks.append(reader.sample())
        died = any(look.machine.stubs["text_tokenizer"] == 0 for look in looks)
        return died and looks[-1].machine.stubs["text_tokenizer"] == 1

    eventually(is_replaced)
    assert all(look.is_ready("text_tokenizer") for look in looks)
    gone = next(place for place, look in enumerate(looks) if look.machine.stubs["text_tokenizer"] == 0)
    said = {finding.name: finding for finding in judge(reader.observation(looks[: gone + 1]))[0]}
    assert said["stub_dead"].figure == "0 of 1 processes are alive"


def test_memory_that_ran_out_is_in_the_log(server, examine):
    write(server.repository / "large", f'name: "large"\nbackend: "python"\n{TENSORS}', TOO_LARGE)
    with pytest.raises(urllib.error.HTTPError):
        post(server, "models/large/load")
    said = found(examine(0.5))
    assert "no 8 GiB left" in said["out_of_memory"]["figure"]
    assert "no 8 GiB left" in said["model_failed_to_load"]["figure"]
