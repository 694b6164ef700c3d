"""The key to what changes a server: its file, its flags, and how it is printed."""

from __future__ import annotations

import os
import stat

import pytest

from scripts.server import control_key
from scripts.server.control_key import APIS, ControlKey

KEY = ControlKey("0" * 64)


def nothing_said(line: str) -> None:
    raise AssertionError(line)


def test_each_start_makes_another_one_of_256_bits():
    keys = {control_key.new().value for _ in range(100)}
    assert len(keys) == 100
    assert {len(bytes.fromhex(value)) for value in keys} == {32}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_the_file_is_this_users_alone_and_gone_after_the_server(tmp_path, umask):
    file = control_key.file_beside(tmp_path / "logs" / "server.log")
    (tmp_path / "logs").mkdir()
    before = os.umask(umask)
    try:
        with control_key.kept(KEY, file, nothing_said):
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0
            os.umask(before)
            file.chmod(0o600)  # where the umask took even that
            assert control_key.read(file) == KEY
            assert list(file.parent.iterdir()) == [file]
    finally:
        os.umask(before)
    assert not file.exists()


def test_it_is_not_in_what_a_traceback_would_show():
    assert KEY.value not in repr(KEY)


def test_an_earlier_file_that_anybody_may_read_does_not_lend_its_mode(tmp_path):
    file = tmp_path / "server.log.key"
    file.write_text("old")
    file.chmod(0o666)
    with control_key.kept(KEY, file, nothing_said):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_server_that_took_the_place_keeps_its_file(tmp_path):
    file = tmp_path / "server.log.key"
    later = ControlKey("1" * 64)
    with control_key.kept(KEY, file, nothing_said):
        with control_key.kept(later, file, nothing_said):
            pass
        assert not file.exists()
        file.write_text(later.line)
    assert control_key.read(file) == later


def test_a_place_that_cannot_be_written_is_told_and_stops_nothing(tmp_path):
    (tmp_path / "file").touch()
    said: list[str] = []
    with control_key.kept(KEY, tmp_path / "file" / "server.log.key", said.append):
        pass
    assert len(said) == 1 and "the control key is not kept" in said[0] and KEY.value not in said[0]


def test_open_doors_leave_no_old_key_behind(tmp_path):
    file = tmp_path / "server.log.key"
    file.write_text(KEY.line)
    with control_key.kept(None, file, nothing_said):
        assert not file.exists()


def test_both_protocols_are_closed_where_a_person_says_nothing():
    apis = ",".join(APIS)
    assert control_key.flags(KEY, ["--log-verbose=1"]) == [
        f"--http-restricted-api={apis}:llm-router-control-key={KEY.value}",
        f"--grpc-restricted-protocol={apis}:llm-router-control-key={KEY.value}",
    ]


@pytest.mark.parametrize("form", [["--http-restricted-api={}"], ["--http-restricted-api", "{}"]])
def test_a_persons_own_key_stays_and_is_the_one_that_opens_the_repository(form):
    given = [word.format("inference,model-repository:x-admin=mine=1") for word in form]
    http, grpc = control_key.flags(KEY, given)
    assert http.startswith("--http-restricted-api=trace,logging,shared-memory:")
    assert grpc.startswith(f"--grpc-restricted-protocol={','.join(APIS)}:")
    assert control_key.for_repository(KEY, given) == ControlKey("mine=1", "x-admin")
    assert control_key.for_repository(None, given) == ControlKey("mine=1", "x-admin")
    assert control_key.for_repository(KEY, ["--http-restricted-api=inference:x-admin=1"]) == KEY


def test_it_is_printed_as_the_header_that_curl_takes(tmp_path, capsys):
    log = tmp_path / "server.log"
    with control_key.kept(KEY, control_key.file_beside(log), nothing_said):
        assert control_key.print_key(["--print-key", "--log", str(log)]) == 0
    assert capsys.readouterr().out == f"llm-router-control-key: {KEY.value}\n"


def test_without_a_server_one_line_says_where_was_looked(tmp_path, capsys):
    assert control_key.print_key(["cpu", "--print-key", "--log", str(tmp_path / "a.log")]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(f"error: {tmp_path}/a.log.key: No such file or directory; ")
