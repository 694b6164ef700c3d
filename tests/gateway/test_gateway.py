"""The gateway in front of the stand-in for the router; tests/server/test_gateway.py has the same on the real server."""

from __future__ import annotations

import pytest

from tests.gateway.cases import GatewayCases
from tests.gateway.nvidia_cases import NvidiaChatCases, NvidiaCompletionCases


class TestInFrontOfTheStandIn(GatewayCases, NvidiaChatCases, NvidiaCompletionCases):
    @pytest.fixture(autouse=True)
    def with_gateway(self, gateway, fake):
        self.gateway, self.fake = gateway, fake

    def stopped(self):
        return self.fake.stopped

    def started(self):
        return len(self.fake.requests)
