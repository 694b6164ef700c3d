"""What another program reads from the routers' table."""

from __future__ import annotations

import os

import pytest

from bls.contract import LARGE, SMALL
from bls.routing import table_layout
from bls.routing.shared_table import SharedTable
from bls.routing.table_layout import IN_FLIGHT, ROW_NUMBERS, WAITING, idle_processes


@pytest.mark.parametrize("number", [IN_FLIGHT, WAITING])
@pytest.mark.parametrize("model", [SMALL, LARGE])
def test_a_process_is_idle_while_it_has_no_request_of_any_model(tmp_path, number, model):
    path = tmp_path / "table"
    table = SharedTable(path)
    table.slot(SMALL)
    at = table.slot(model) * ROW_NUMBERS + number
    assert idle_processes(path) == {os.getpid()}
    table.own[at] += 1
    assert idle_processes(path) == frozenset()
    table.own[at] -= 1
    assert idle_processes(path) == {os.getpid()}


@pytest.mark.parametrize("content", [b"", b"x" * table_layout.SIZE, table_layout.MAGIC])
def test_a_file_that_is_no_table_is_refused(tmp_path, content):
    path = tmp_path / "table"
    path.write_bytes(content)
    with pytest.raises(OSError, match="not a table"):
        idle_processes(path)
