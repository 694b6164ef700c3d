"""The policy that is in force, and how an edited file comes into force in every router process while they serve.

One process checks a new file (verdicts.py), and the others follow. The source of the last good version stands in the
table that all share too, so a router process that starts again while a bad file lies there serves the last good one;
and beside the server's log, for a server that starts again.
"""

from __future__ import annotations

import base64
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from bls.routing.policy_file import Policy, load_policy, read_source
from bls.routing.settings import BadPolicy
from bls.routing.verdicts import PolicySource, Verdicts

LOOK_SECONDS = 1.0
SOON_SECONDS = 0.2  # While a file is being written, or another process checks it.
_LAST_GOOD = "good"


class Policies:
    """`current` is the policy to decide by; `look`, from a thread once in LOOK_SECONDS, keeps it up to date.

    `kept` is a folder for the last good version's copy. `counted` is called with "taken" or "refused", in the one
    process that checked a file. Raises RuntimeError, with file and line, if neither the file nor a copy is any good.
    """

    def __init__(
        self,
        path: Path,
        verdicts: Verdicts,
        kept: Path | None = None,
        counted: Callable[[str], None] = lambda outcome: None,
    ) -> None:
        self._path = path
        self._verdicts = verdicts
        # Not the file that a link leads to: kubelet turns one for each version of a ConfigMap.
        digest = blake2b(str(path.absolute()).encode(), digest_size=4).hexdigest()
        self._copy = kept / f"last_good_policy_{digest}.py" if kept else None
        self._counted = counted
        self._seen: tuple[int, int, int] | None = None
        self.current = self._first()

    def look(self) -> float:
        """Takes the file if it has changed and is good. Returns in how many seconds to look again."""
        seen, age = self._stat()
        if seen == self._seen:
            return LOOK_SECONDS
        if 0 <= age < SOON_SECONDS:  # An editor may be at it.
            return SOON_SECONDS
        file = PolicySource(self._path, seen)
        problem: str | None = ""
        if file.version != self.current.version:
            problem = self._verdict(file)
            if problem is None:
                return SOON_SECONDS
            if not problem:
                self.current = load_policy(self._path, file.source)
        self.current = replace(self.current, refused_edit=self._told(problem or ""))
        self._seen = seen
        return LOOK_SECONDS

    def _stat(self) -> tuple[tuple[int, int, int], float]:
        """What changes with the file, and how many seconds ago it did."""
        try:
            stat = os.stat(self._path)
        except OSError:
            return (0, 0, 0), LOOK_SECONDS
        return (stat.st_mtime_ns, stat.st_ino, stat.st_size), time.time() - stat.st_mtime

    def _verdict(self, file: PolicySource) -> str | None:
        return self._verdicts.find(file, lambda problem: self._checked(file, problem))

    def _checked(self, file: PolicySource, problem: str) -> None:
        if problem:
            logging.error(f"the policy is refused, the last good one serves on: {problem}")
        else:
            logging.warning(f"{self._path}: policy {file.version} takes effect")
            self._verdicts.write(_LAST_GOOD, base64.b64encode(file.source).decode())
            if self._copy:
                _write_copy(self._copy, file.source)
        self._counted("refused" if problem else "taken")

    def _first(self) -> Policy:
        """The file's policy if it is good, else the last good one."""
        seen, _ = self._stat()
        file = PolicySource(self._path, seen)
        while (problem := self._verdict(file)) is None:
            time.sleep(SOON_SECONDS / 4)
        self._seen = seen
        if not problem:
            return load_policy(self._path, file.source)
        policy = self._last_good()
        if policy is None:
            raise RuntimeError(f"there is no good policy: {problem}")
        logging.error(f"the last good policy, {policy.version}, serves instead of {problem}")
        return replace(policy, refused_edit=self._told(problem))

    def _told(self, problem: str) -> str:
        """For clients, who need not know where the file lies."""
        return problem.replace(str(self._path), self._path.name)

    def _last_good(self) -> Policy | None:
        source = base64.b64decode(self._verdicts.read(_LAST_GOOD))
        if source:
            return load_policy(self._path, source)
        if self._copy is None:
            return None
        try:
            source = read_source(self._copy)
            self._verdicts.check(self._copy, source)
            return load_policy(self._copy, source)
        except BadPolicy:
            return None


def _write_copy(copy: Path, source: bytes) -> None:
    """Where the folder can be written: a read-only one costs the copy, no more."""
    draft = copy.with_name(f".{copy.name}.{os.getpid()}")
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(source)
        draft.replace(copy)
    except OSError as error:
        logging.warning(f"{copy}: no copy of the last good policy is kept: {error.strerror}")
