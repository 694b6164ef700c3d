"""Another policy that also decides each request, after its answer: nobody sees what it says, the metrics count it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from bls.routing.policy_file import Policy, load_policy
from bls.routing.settings import Settings
from bls.routing.verdicts import PolicySource, Verdicts


class ShadowPolicy:
    """`current` is the file that SHADOW_POLICY names, None where there is none or it is no good.

    It is executed only once it has passed the checks of the policy that decides, in a child.
    """

    def __init__(self, folder: Path, verdicts: Verdicts) -> None:
        self.current: Policy | None = None
        self._folder = folder
        self._verdicts = verdicts
        self._seen: tuple[str, int, int] | None = None

    def look(self, settings: Settings) -> None:
        """Takes the named file if it has changed and is good; from a thread, about once a second."""
        seen = self._stat(settings.shadow_policy)
        if seen == self._seen:
            return
        taken = None
        if settings.shadow_policy:
            file = PolicySource(self._folder / settings.shadow_policy, seen)
            problem = self._verdicts.find(file, _told)
            if problem is None:  # Another process is finding out: the next look knows.
                return
            if not problem:
                taken = load_policy(file.path, file.source)
        self.current, self._seen = taken, seen

    def _stat(self, name: str) -> tuple[str, int, int]:
        if not name:
            return ("", 0, 0)
        try:
            stat = os.stat(self._folder / name)
        except OSError:
            return (name, 0, 0)
        return (name, stat.st_mtime_ns, stat.st_ino)


def _told(problem: str) -> None:
    if problem:
        logging.error(f"there is no shadow policy, the file is refused: {problem}")
