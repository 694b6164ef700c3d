"""Who gets in: each door of a running server, tried without its key and with it."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException

from bls.contract import ENGINE_CONTROL, LARGE, LLAMA_7B, LLAMA_7B_ENSEMBLE, PREPROCESSING, ROUTER, SMALL
from scripts.host import processes, shared_memory
from scripts.server import control_key
from scripts.server.control_key import ControlKey
from tests.server import sleeper
from tests.server.clients import answer, events_of, generate
from tests.server.serving import ROOT, Server, running_server
from tests.waiting import eventually

pytestmark = pytest.mark.server


def add_model(repository: Path, instances: int = 1) -> Path:
    (repository / "sleeper" / "1").mkdir(parents=True)
    (repository / "sleeper" / "config.pbtxt").write_text(sleeper.config("sleeper", instances))
    (repository / "sleeper" / "1" / "model.py").write_text(sleeper.CODE)
    return repository


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """As scripts/serve starts it, with one model; its log says all that it can."""
    folder = tmp_path_factory.mktemp("doors")
    with running_server(folder, add_model(folder / "models"), "--log-verbose=2") as running:
        yield running


def key_of(server: Server) -> ControlKey:
    assert server.control_key_file
    return control_key.read(server.control_key_file)


def ask(
    server: Server, method: str, path: str, body: str = "", headers: dict[str, str] | None = None
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(server.http_url).netloc, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()


REPOSITORY = "/v2/repository"
INTERNAL_KEY = "llm_router_internal_key"  # a request's parameter, see bls/triton_io.py
CLOSED = [
    ("POST", f"{REPOSITORY}/index"),
    ("POST", f"{REPOSITORY}/models/sleeper/load"),
    ("POST", f"{REPOSITORY}/models/sleeper/unload"),
    ("GET", "/v2/logging"),
    ("POST", "/v2/logging"),
    ("GET", "/v2/trace/setting"),
    ("POST", "/v2/trace/setting"),
    ("GET", "/v2/models/sleeper/trace/setting"),
    ("POST", "/v2/models/sleeper/trace/setting"),
    ("GET", "/v2/systemsharedmemory/status"),
    ("POST", "/v2/systemsharedmemory/region/a/register"),
    ("POST", "/v2/systemsharedmemory/unregister"),
    ("GET", "/v2/cudasharedmemory/status"),
    ("POST", "/v2/cudasharedmemory/region/a/register"),
    ("POST", "/v2/cudasharedmemory/unregister"),
]


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_what_changes_the_server_is_refused_without_its_key_or_with_another(server, method, path):
    for headers in ({}, {control_key.HEADER: "0" * 64}, {control_key.HEADER: ""}):
        status, text = ask(server, method, path, headers=headers)
        assert status == 403, (path, headers, text)
        assert key_of(server).value not in text


@pytest.mark.parametrize(
    "path",
    [
        *(f"{REPOSITORY}/{way}index" for way in ("/", "./", "../repository/", "%2e/", "x/../")),
        "//v2/repository/index",
        "/V2/repository/index",
        f"{REPOSITORY}/index?key=1",
        f"{REPOSITORY}/index/",
        f"{REPOSITORY}%2findex",
        f"{REPOSITORY}/models/sleeper/load?{control_key.HEADER}=1",
        f"{REPOSITORY}/models/sleeper%2fload",
    ],
)
def test_no_other_spelling_of_the_address_opens_it(server, path):
    assert ask(server, "POST", path)[0] in (400, 403, 404, 405), path


def evil(folder: Path) -> str:
    """The body of a load that would write a file where it is obeyed."""
    code = f"import pathlib\npathlib.Path({str(folder / 'ran')!r}).touch()\n{sleeper.CODE}"
    config = {"name": "evil", "backend": "python", "max_batch_size": 0}
    files = {"config": json.dumps(config), "file:1/model.py": b64encode(code.encode()).decode()}
    return json.dumps({"parameters": files})


def test_a_stranger_runs_no_code(server, tmp_path):
    assert ask(server, "POST", f"{REPOSITORY}/models/evil/load", evil(tmp_path))[0] == 403
    assert not (tmp_path / "ran").exists()


def test_a_web_page_in_a_browser_on_this_machine_changes_nothing(server):
    page = {"Content-Type": "text/plain", "Origin": "http://elsewhere.example", "Host": "elsewhere.example"}
    assert ask(server, "POST", f"{REPOSITORY}/models/sleeper/unload", "{}", page)[0] == 403
    # A page that sends a header of its own has to ask first, and Triton says nothing that would allow it.
    status, _ = ask(server, "OPTIONS", f"{REPOSITORY}/models/sleeper/unload", headers=page)
    assert status not in (200, 204)
    assert ask(server, "GET", "/v2/models/sleeper/ready")[0] == 200


GRPC_CALLS = [
    ("get_model_repository_index", ()),
    ("load_model", ("sleeper",)),
    ("unload_model", ("sleeper",)),
    ("get_log_settings", ()),
    ("update_log_settings", ({"log_verbose_level": 2},)),
    ("get_trace_settings", ()),
    ("update_trace_settings", (None, {"trace_level": ["TIMESTAMPS"]})),
    ("get_system_shared_memory_status", ()),
    ("register_system_shared_memory", ("a", "/a", 8)),
    ("unregister_system_shared_memory", ()),
    ("get_cuda_shared_memory_status", ()),
    ("unregister_cuda_shared_memory", ()),
]


@pytest.mark.parametrize(("call", "arguments"), GRPC_CALLS)
def test_the_same_holds_over_grpc(server, call, arguments):
    with grpc.InferenceServerClient(server.grpc_url) as client:
        name = f"{control_key.GRPC_PREFIX}{control_key.HEADER}"
        for headers in ({}, {name: "0" * 64}, key_of(server).headers):
            with pytest.raises(InferenceServerException, match="This protocol is restricted"):
                getattr(client, call)(*arguments, headers=headers)


def test_over_grpc_the_key_has_tritons_prefix(server):
    with grpc.InferenceServerClient(server.grpc_url) as client:
        index = client.get_model_repository_index(headers=key_of(server).grpc_headers)
        assert [model.name for model in index.models] == ["sleeper"]
        assert client.get_log_settings(headers=key_of(server).grpc_headers)


@pytest.mark.parametrize(
    "path", ["/v2", "/v2/health/ready", "/v2/models/sleeper/ready", "/v2/models/sleeper/config", "/v2/models/stats"]
)
def test_what_only_reads_and_what_computes_stays_open(server, path):
    assert ask(server, "GET", path)[0] == 200
    assert sleeper.sleep(server, 0.0) == [0.0]


def test_no_command_line_of_this_machine_shows_the_key(server):
    secret = key_of(server).value

    def shown() -> list[str]:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [words[0] for words in map(processes.command, pids) if secret in " ".join(words)]

    assert eventually(lambda: not shown()), shown()


def test_neither_the_log_nor_the_console_nor_the_environment_holds_the_key(server):
    secret = key_of(server).value.encode()
    ask(server, "POST", f"{REPOSITORY}/index", headers=key_of(server).headers)
    places = [server.log, server.console, *(Path(f"/proc/{pid}/environ") for pid in processes.tree(server.server_pid))]
    assert [str(place) for place in places if secret in place.read_bytes()] == []


def test_no_other_user_of_the_machine_can_read_prompts_in_shared_memory(server):
    def modes() -> set[int]:
        files = shared_memory.FOLDER.glob(f"{shared_memory.PREFIX}{server.supervisor_pid}_*")
        return {file.stat().st_mode & 0o777 for file in files}

    assert eventually(lambda: modes() == {0o600}), modes()
    assert sleeper.sleep(server, 0.0) == [0.0]


def test_its_file_is_this_users_alone_and_is_printed_on_request(server):
    assert server.control_key_file == server.log.with_name(f"{server.log.name}.key")
    assert server.control_key_file.stat().st_mode & 0o777 == 0o600
    words = [ROOT / "scripts" / "serve", "--print-key", f"--log={server.log}"]
    printed = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    assert printed == server.control_key_file.read_text() == f"{key_of(server).line}\n"


def test_the_key_leaves_with_the_server_and_the_next_one_has_another(tmp_path):
    repository = add_model(tmp_path / "models")
    keys = []
    for _ in range(2):
        with running_server(tmp_path, repository) as running:
            keys.append(key_of(running))
        assert not (tmp_path / "tritonserver.log.key").exists()
    assert keys[0] != keys[1]


def test_a_person_may_open_what_changes_the_server(tmp_path):
    with running_server(tmp_path, add_model(tmp_path / "models"), "--open-control-api") as running:
        assert running.control_key_file is None
        status, text = ask(running, "POST", f"{REPOSITORY}/models/evil/load", evil(tmp_path))
        assert (status, (tmp_path / "ran").exists()) == (200, True), text
        assert "whoever reaches these ports can load models, which is to run code" in running.console.read_text()


def kill_a_stub(server: Server) -> int:
    pid = next(pid for pid in processes.tree(server.server_pid) if processes.stub_model(pid) == "sleeper")
    os.kill(pid, 9)
    return pid


@pytest.mark.parametrize("flags", [(), ("--http-restricted-api=model-repository:x-admin=mine",)])
def test_models_are_repaired_with_the_key_and_with_a_persons_own(tmp_path, flags):
    with running_server(tmp_path, add_model(tmp_path / "models", instances=2), *flags) as running:
        kill_a_stub(running)
        assert eventually(lambda: "model sleeper is whole again" in running.console.read_text(), 60)
        assert sleeper.sleep(running, 0.0) == [0.0]


@pytest.fixture
def small_repository(tmp_path: Path) -> Path:
    """The real models but for what a router with two processes does without."""
    models = tmp_path / "model_repository"
    for model in (ROUTER, PREPROCESSING, ENGINE_CONTROL, SMALL, LARGE, LLAMA_7B, LLAMA_7B_ENSEMBLE):
        shutil.copytree(ROOT / "model_repository" / model, models / model)
    config = models / ROUTER / "config.pbtxt"
    config.write_text(re.sub(r"count: \d+", "count: 2", config.read_text()))
    shutil.copytree(ROOT / "words", tmp_path / "words")
    shutil.copytree(ROOT / "engines" / "built", tmp_path / "engines" / "built", copy_function=os.link)
    return models


@pytest.mark.slow
def test_closed_engines_answer_the_router_and_no_client(tmp_path, small_repository):
    ids = {"input_ids": [1, 2, 3], "input_lengths": 3, "request_output_len": 4}
    (tmp_path / "server").mkdir()
    with running_server(tmp_path / "server", small_repository, "--close-engines", "--log-verbose=1") as running:
        for model in (SMALL, LARGE):
            for guess in ({}, {INTERNAL_KEY: ""}, {INTERNAL_KEY: "0" * 64}):
                status, reply = generate(running, model, **ids, **guess)
                assert (status, reply["error"]) == (400, "[BAD_REQUEST] this engine answers llm_router alone: ask that")
        assert generate(running, LLAMA_7B, **ids)[0] == 404  # It is not loaded.
        assert answer(running, text_input="Hello", max_tokens=4)["finish_reason"] == "length"
        assert events_of(running, text_input="Hello", max_tokens=4)[-1]["finish_reason"] == "length"
        # What ends at a stop word is stopped in the engine, through engine_control.
        counted = answer(running, text_input="1, 2, 3, 4, 5,", max_tokens=200, stop_words=[","])
        assert counted["finish_reason"] == "stop_word"
        environment = Path(f"/proc/{running.server_pid}/environ").read_bytes()
        word = environment.partition(b"LLM_ROUTER_INTERNAL_KEY=")[2].partition(b"\0")[0]
        assert len(word) == 64 and word not in running.log.read_bytes()
