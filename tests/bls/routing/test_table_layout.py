"""What another program reads from the routers' table."""

from __future__ import annotations

import os

import pytest

from bls.routing import table_layout
from bls.routing.admission import Admission
from bls.routing.shared_table import SharedTable
from bls.routing.table_layout import idle_processes


def test_a_process_is_idle_while_it_answers_no_request(tmp_path):
    path = tmp_path / "table"
    admission = Admission(SharedTable(path))
    assert idle_processes(path) == {os.getpid()}
    admission.answers(1)
    assert idle_processes(path) == frozenset()
    admission.answers(0)
    assert idle_processes(path) == {os.getpid()}


@pytest.mark.parametrize("content", [b"", b"x" * table_layout.SIZE, table_layout.MAGIC])
def test_a_file_that_is_no_table_is_refused(tmp_path, content):
    path = tmp_path / "table"
    path.write_bytes(content)
    with pytest.raises(OSError, match="not a table"):
        idle_processes(path)
