"""The time between a new server's taking over and the old one's end: clients move by themselves, and lose nothing.

New connections go to the new server. Those that clients have with the old one stay, so it serves on: tritonserver turns
a request away that comes once it was told to stop, and 2.51 tells no client to go elsewhere. But it tells each gRPC
connection so when that is as old as its settings let it get, lets what runs on it end, and the client's next request
opens another. HTTP connections are closed as soon as nothing is asked on them.
"""

from __future__ import annotations

import time

from scripts.server.drain import Quiet
from scripts.server.generation import Generation

_JITTER = 1.1  # gRPC spreads the age of connections by a tenth
_MORE_S = 1.0  # until a client has heard of it


class Leaving:
    """Made when another server gets the new connections; then `look` a few times a second."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self._quiet = Quiet(generation)
        self._begun = time.monotonic()
        self._moved_s = generation.settings.connection_age_s * _JITTER + _MORE_S
        generation.leave()

    def look(self) -> bool:
        """Whether it may be told to stop: all have moved and have their answers, or had as long as a drain to get them.

        A client that keeps one stream for all its requests does not move.
        """
        self.generation.look()
        self.generation.close_idle_connections()
        waited = time.monotonic() - self._begun
        if self.generation.has_ended:
            return True
        if waited < self._moved_s:
            return False
        if not self._quiet.can_be_seen or waited > self._moved_s + self.generation.settings.drain_s:
            return True
        return self._quiet.look()
