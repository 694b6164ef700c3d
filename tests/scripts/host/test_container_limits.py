from __future__ import annotations

import pytest

from scripts.host.container_limits import Limits, read

FILES = {
    "cpu.max": "250000 100000\n",
    "memory.max": "8589934592\n",
    "memory.current": "6000000000\n",
    "memory.stat": "anon 5000000000\nfile 900000000\ninactive_file 700000000\n",
    "memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 0\n",
}


def written(folder, **changed):
    for name, text in {**FILES, **{key.replace("_", "."): text for key, text in changed.items()}}.items():
        (folder / name).write_text(text)
    return folder


def test_a_container_has_its_own_cores_memory_and_kills(tmp_path):
    assert read(written(tmp_path)) == Limits(2.5, 8589934592, 8589934592 - 6000000000 + 700000000, 2)


def test_where_nothing_is_limited_nothing_is_said(tmp_path):
    assert read(written(tmp_path, cpu_max="max 100000\n", memory_max="max\n")) == Limits(oom_kills=2)
    assert read(tmp_path / "none") == Limits()


@pytest.mark.parametrize("text", ["", "1", "a b", "5 0", "1 2 3"])
def test_a_file_that_is_not_as_it_should_be_says_nothing(tmp_path, text):
    assert read(written(tmp_path, cpu_max=text)).cores is None
