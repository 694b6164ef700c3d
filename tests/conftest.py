from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def signal_handlers_of_scripts_go_with_their_tests() -> Iterator[None]:
    """A script's main() that a test calls answers ctrl-C in its own way from then on."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
