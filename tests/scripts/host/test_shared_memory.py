from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.host import shared_memory


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shm").mkdir()
    return tmp_path / "shm"


def put(folder: Path, name: str, age_s: float = 60.0) -> Path:
    path = folder / name
    path.touch()
    os.utime(path, (path.stat().st_mtime - age_s,) * 2)
    return path


def processes(tmp_path: Path, *mapped: str) -> Path:
    """A /proc with one process that maps these files, and one that may not be read."""
    maps = "".join(f"7f00-7f01 rw-s 00000000 00:1a 5 /dev/shm/{name}\n" for name in mapped)
    (tmp_path / "proc" / "12").mkdir(parents=True)
    (tmp_path / "proc" / "12" / "maps").write_text(f"55d0-55d1 r-xp 00000000 fe:01 9 /usr/bin/stub\n{maps}")
    (tmp_path / "proc" / "13" / "maps").mkdir(parents=True)
    return tmp_path / "proc"


def test_stale_files_are_those_that_no_process_maps(tmp_path, folder):
    ours, backends = f"{shared_memory.PREFIX}1_ab_x", f"{shared_memory.BACKEND_PREFIX}y"
    for name in (ours, backends, f"{ours}_live", "somebody_elses"):
        put(folder, name)
    removed = shared_memory.remove_stale(folder, processes(tmp_path, f"{ours}_live"))
    assert removed == [ours, backends]
    assert sorted(path.name for path in folder.iterdir()) == [f"{ours}_live", "somebody_elses"]


def test_a_file_that_was_just_made_is_not_stale(tmp_path, folder):
    put(folder, f"{shared_memory.PREFIX}1_ab_x", age_s=1.0)
    assert shared_memory.remove_stale(folder, processes(tmp_path)) == []


def test_a_file_of_another_user_is_left_alone(tmp_path, folder, monkeypatch):
    put(folder, f"{shared_memory.PREFIX}1_ab_x")
    monkeypatch.setattr(shared_memory.os, "getuid", lambda: 4_000_000)
    assert shared_memory.remove_stale(folder, processes(tmp_path)) == []


def test_a_server_removes_its_own_files_only(folder):
    mine, other = shared_memory.new_prefix(), shared_memory.new_prefix()
    put(folder, f"{mine}x")
    put(folder, f"{other}x")
    assert shared_memory.remove(mine, folder) == [f"{mine}x"]
    assert [path.name for path in folder.iterdir()] == [f"{other}x"]


def test_files_that_others_may_read_become_this_users_alone_and_links_are_left(tmp_path):
    mine, other, outside = tmp_path / "llm_router_shm_1_a", tmp_path / "other", tmp_path / "outside"
    for file in (mine, other, outside):
        file.touch()
        file.chmod(0o644)
    (tmp_path / "llm_router_shm_1_link").symlink_to(outside)
    shared_memory.make_private("llm_router_shm_1_", tmp_path)
    assert [file.stat().st_mode & 0o777 for file in (mine, other, outside)] == [0o600, 0o644, 0o644]
