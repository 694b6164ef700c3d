"""The load of these tests on a server that nothing befalls: what it counts as lost is the fault's."""

from __future__ import annotations

import pytest

from tests.faults.load import Load

pytestmark = [pytest.mark.server, pytest.mark.slow]


def test_without_a_fault_nothing_is_lost(server):
    with Load(server) as load:
        load.fault("none")
        report = load.watch(8)
    assert report.lost == report.busy == 0 and report.whole_s == 0
    assert {outcome.ask.kind for outcome in report.outcomes} == {
        "stream",
        "grpc",
        "generate",
        "generate_stream",
        "refused",
    }
