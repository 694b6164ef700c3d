"""The tests decide by a policy of their own, so that they hold after you edit yours; servers that they start too.

It is a copy of the shipped one: whoever changes what is shipped changes both.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["LLM_ROUTER_POLICY"] = str(Path(__file__).parent / "data" / "policy.py")  # before bls is imported


@pytest.fixture(scope="module", autouse=True)
def signal_handlers_of_scripts_go_with_their_tests() -> Iterator[None]:
    """A script's main() that a test calls answers ctrl-C in its own way from then on."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
