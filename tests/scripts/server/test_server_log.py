from __future__ import annotations

from pathlib import Path

import pytest

from scripts.server.server_log import Failed, Loaded, ServerLog, Stopping, Trouble

STAMP = "1129 20:51:47.624857 5733"


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (f"I{STAMP} model_lifecycle.cc:839] \"successfully loaded 'slow'\"", Loaded("slow")),
        (
            f"E{STAMP} model_lifecycle.cc:642] \"failed to load 'bad' version 1: Internal: "
            "ModuleNotFoundError: No module named 'x'\\n\\nAt:\\n  /models/bad/1/model.py(1): <module>\"",
            Failed("bad", "ModuleNotFoundError: No module named 'x'"),
        ),
        (
            f"E{STAMP} model_repository_manager.cc:1415] "
            "\"failed to poll model 'gone': model not found in any model repository.\"",
            Failed("gone", "model not found in any model repository."),
        ),
        (
            "error: creating server: Invalid argument - load failed for model 'bad': "
            "version 1 is at UNAVAILABLE state: Internal: no weights",
            Failed("bad", "no weights"),
        ),
        (f'I{STAMP} http_server.cc:248] "Timeout 8: Found 1 HTTP service connections"', Stopping(connections=1)),
        (
            f'I{STAMP} server.cc:321] "Timeout 8: Found 2 live models and 0 in-flight non-inference requests"',
            Stopping(live_models=2),
        ),
        ("/x/bin/tritonserver: unrecognized option '--typo=1'", Trouble("unrecognized option '--typo=1'")),
        (
            'Bad option: "--rate-limit".\ninvalid argument for --rate-limit',
            Trouble("--rate-limit: invalid argument for --rate-limit"),
        ),
        (f'E{STAMP} http_server.cc:4713] "failed to start HTTP service"', Trouble("failed to start HTTP service")),
        (
            "error: creating server: Internal - failed to load all models",
            Trouble("creating server: Internal - failed to load all models"),
        ),
    ],
)
def test_a_line_that_matters_becomes_an_event(tmp_path, line, event):
    (tmp_path / "log").write_text(f"{line}\n")
    assert ServerLog(tmp_path / "log").events() == [event]


@pytest.mark.parametrize(
    "line",
    [
        f'E{STAMP} server.cc:241] "CudaDriverHelper has not been initialized."',
        "Error: Failed to initialize NVML",
        f'I{STAMP} model_lifecycle.cc:472] "loading: slow:1"',
        f"I{STAMP} model_lifecycle.cc:777] \"failed to load 'bad'\"",
        "",
    ],
)
def test_what_every_server_says_is_no_event(tmp_path, line):
    (tmp_path / "log").write_text(f"{line}\n")
    assert ServerLog(tmp_path / "log").events() == []


def test_a_config_error_gets_the_place_that_protobuf_named(tmp_path):
    (tmp_path / "log").write_text(
        "[libprotobuf ERROR /build/text_format.cc:337] Error parsing text-format inference.ModelConfig: "
        '1:4: Message type "inference.ModelConfig" has no field named "nme".\n'
        f"E{STAMP} x.cc:1] \"Poll failed for model directory 'm': failed to read text proto from /m/config.pbtxt\"\n"
    )
    assert ServerLog(tmp_path / "log").events() == [
        Failed(
            "m",
            "failed to read text proto from /m/config.pbtxt, at line:column "
            '1:4: Message type "inference.ModelConfig" has no field named "nme"',
        )
    ]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_each_line_is_read_once_and_only_when_it_is_whole(tmp_path):
    path = tmp_path / "log"
    path.touch()
    log = ServerLog(path)
    append(path, "successfully loa")
    assert log.events() == []
    append(path, "ded 'a'\nsuccessfully loaded 'b'\n")
    assert log.events() == [Loaded("a"), Loaded("b")]
    assert log.events() == []


def test_a_log_that_has_become_large_begins_anew_and_is_followed_on(tmp_path):
    path = tmp_path / "log"
    log = ServerLog(path)
    with path.open("ab", buffering=0) as server:
        server.write(b"successfully loaded 'a'\n" * 10)
        assert len(log.events()) == 10
        log.keep_below(1000)
        assert not (tmp_path / "log.1").exists()
        log.keep_below(100)
        assert (path.stat().st_size, (tmp_path / "log.1").stat().st_size) == (0, 240)
        server.write(b"successfully loaded 'b'\n")
    assert log.events() == [Loaded("b")]
    assert path.stat().st_size == 24


def test_mpirun_says_which_rank_ended_and_how(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).\n"
        "prterun noticed that process rank 0 with PID 77 on node vm exited on signal 11 (Segmentation fault).\n"
        "the job to be terminated. The first process to do so was:\n\n"
        "  Process name: [[14989,1],2]\n  Exit code:    3\n"
        "  Process name: [prterun-vm-77@1,0]\n  Exit code:    1\n"
        "All nodes which are allocated for this job are already filled.\n"
    )
    assert ServerLog(path).events() == [
        Trouble("rank 1 was killed by signal 9 (Killed)"),
        Trouble("rank 0 was killed by signal 11 (Segmentation fault)"),
        Trouble("rank 2 ended with exit status 3"),
        Trouble("rank 0 ended with exit status 1"),
        Trouble("mpirun has fewer slots than ranks: use --oversubscribe"),
    ]
