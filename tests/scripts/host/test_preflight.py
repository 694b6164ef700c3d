from __future__ import annotations

import socket
from pathlib import Path

import pytest

from scripts.host import preflight
from scripts.host.preflight import Refused


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_free_ports_are_taken():
    preflight.check_ports("127.0.0.1", {"--http-port": free_port()})


def test_a_port_with_a_listener_is_refused_with_the_flag_that_changes_it():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(Refused, match=r"port \d+ is taken: .*--grpc-port"),
    ):
        preflight.check_ports("127.0.0.1", {"--grpc-port": listener.getsockname()[1]})


def test_the_same_port_twice_is_refused_with_both_flags():
    port = free_port()
    with pytest.raises(Refused, match=f"--http-port and --grpc-port are both {port}"):
        preflight.check_ports("127.0.0.1", {"--http-port": port, "--grpc-port": port})


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_what_is_no_port_is_refused(port):
    with pytest.raises(Refused, match="is not a port"):
        preflight.check_ports("127.0.0.1", {"--http-port": port})


def test_an_address_that_is_not_this_machines_is_refused():
    with pytest.raises(Refused, match=r"cannot listen on 192\.0\.2\.1.*--host"):
        preflight.check_ports("192.0.2.1", {"--http-port": free_port()})


def test_a_small_shared_memory_is_refused_with_the_need_and_the_remedy(monkeypatch):
    class Small:
        f_bavail, f_frsize = 64 * 256, 4096

    monkeypatch.setattr(preflight.os, "statvfs", lambda folder: Small)
    preflight.check_shared_memory(24)
    with pytest.raises(Refused, match=r"has 64 MB free, 40 python model instances need 96 MB: .*--shm-size=192m"):
        preflight.check_shared_memory(40)


def test_a_missing_shared_memory_is_refused():
    with pytest.raises(Refused, match="is missing"):
        preflight.check_shared_memory(1, Path("/dev/shm/there is no such folder"))


def test_a_full_disk_is_refused_with_the_need(tmp_path):
    preflight.check_disk(tmp_path, 1, "the set-up")
    with pytest.raises(Refused, match=r"the set-up needs 1000000000 MB"):
        preflight.check_disk(tmp_path, 10**9, "the set-up")


@pytest.mark.parametrize(
    "name", ["a b", "a'b", 'a"b', "a$b", "a&b", "a;b", "a(b", "a*b", "a?b", "a`b", "a|b", "a\\b", "a\tb"]
)
def test_a_path_that_a_shell_would_take_apart_is_refused_in_one_line(name):
    with pytest.raises(Refused, match=r"--model-repository /x/.* has .* in its path") as refused:
        preflight.check_path("--model-repository", Path("/x") / name / "models")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["路径", "é"])
def test_a_path_that_the_python_of_tritonserver_was_seen_not_to_find_is_refused(name):
    with pytest.raises(Refused, match=f"^the checkout /x/{name} is not ASCII"):
        preflight.check_path("the checkout", Path("/x") / name)


@pytest.mark.parametrize("name", ["a-b_c.d", "a,b", "a=b", "a:b", "a@b%c+d", "a~b", "a#b", "a!b"])
def test_a_path_that_tritonserver_was_seen_to_serve_from_is_not(name):
    preflight.check_path("--model-repository", Path("/x") / name / "models")
