"""When calls that hear nothing are given up, and when they are waited for."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from gateway.failures import Away
from gateway.silence import MISSES, Silence

SILENT_S = 0.01


class Server:
    """Answers as `says` until the end, and tells when it has been asked so many times."""

    def __init__(self, says, asked):
        self.says, self.left, self.was_asked = says, asked, asyncio.Event()

    async def answers(self):
        self.left -= 1
        if self.left <= 0:
            self.was_asked.set()
        return self.says


async def call_to(server):
    """How a call that hears nothing ends: cancelled from outside, or given up."""
    silence = Silence(server.answers, SILENT_S)
    mind = asyncio.create_task(silence.mind())

    async def wait():
        with silence.minded(asyncio.current_task()):
            await asyncio.Event().wait()

    call = asyncio.create_task(wait())
    try:
        await asyncio.wait({call, asyncio.create_task(server.was_asked.wait())}, return_when="FIRST_COMPLETED")
        if not call.done():
            call.cancel()
        return await call
    finally:
        mind.cancel()
        with suppress(asyncio.CancelledError):
            await mind


def test_a_server_that_says_nothing_several_times_is_given_up():
    async def ask():
        server = Server(False, 1000)
        with pytest.raises(Away):
            await call_to(server)
        return 1000 - server.left

    assert asyncio.run(ask()) == MISSES


def test_a_server_that_lives_is_waited_for_however_long_a_call_hears_nothing():
    async def ask():
        with pytest.raises(asyncio.CancelledError):
            await call_to(Server(True, 20))

    asyncio.run(ask())
