"""Another policy that also decides each request, after its answer: nobody sees what it says, the metrics count it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from bls.routing.policy_file import Policy, load_policy
from bls.routing.settings import BadPolicy, Settings


class ShadowPolicy:
    """`current` is the file that SHADOW_POLICY names, None where there is none or it is no good.

    It is taken as it is, without the checks of the policy that decides: what it raises is its own decision's matter.
    """

    def __init__(self, folder: Path) -> None:
        self.current: Policy | None = None
        self._folder = folder
        self._seen: tuple[str, int, int] | None = None

    def look(self, settings: Settings) -> None:
        """Takes the named file if it has changed; from a thread, about once a second."""
        seen = self._stat(settings.shadow_policy)
        if seen == self._seen:
            return
        self._seen = seen
        if not settings.shadow_policy:
            self.current = None
            return
        try:
            self.current = load_policy(self._folder / settings.shadow_policy)
        except BadPolicy as bad:
            logging.error(f"no shadow policy: {bad}")
            self.current = None

    def _stat(self, name: str) -> tuple[str, int, int]:
        if not name:
            return ("", 0, 0)
        try:
            stat = os.stat(self._folder / name)
        except OSError:
            return (name, 0, 0)
        return (name, stat.st_mtime_ns, stat.st_ino)
