"""The policy that is in force, and how an edited file comes into force in every router process while they serve.

One process checks a new file, in a child (bls/routing/check.py); its verdict goes by the content's hash into the table
that all share, and the others follow it. The source of the last good version stands in that table too, so a router
process that starts again while a bad file lies there serves the last good one; and beside the server's log, for a
server that starts again.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from bls.routing.check import check_apart
from bls.routing.policy_file import Policy, load_policy, read_source, version_of
from bls.routing.settings import BadPolicy
from bls.routing.shared_table import SharedTable

LOOK_SECONDS = 1.0
SOON_SECONDS = 0.2  # While a file is being written, or another process checks it.
_KEPT_VERDICTS = 16

Check = Callable[[Path, bytes], None]


class Policies:
    """`current` is the policy to decide by; `look`, from a thread once in LOOK_SECONDS, keeps it up to date.

    `kept` is a folder for the last good version's copy. `counted` is called with "taken" or "refused", in the one
    process that checked a file. Raises RuntimeError, with file and line, if neither the file nor a copy is any good.
    """

    def __init__(
        self,
        path: Path,
        table: SharedTable,
        kept: Path | None = None,
        counted: Callable[[str], None] = lambda outcome: None,
        check: Check = check_apart,
    ) -> None:
        self._path = path
        self._table = table
        digest = blake2b(str(path.resolve()).encode(), digest_size=4).hexdigest()
        self._copy = kept / f"last_good_policy_{digest}.py" if kept else None
        self._counted = counted
        self._check = check
        self._seen: tuple[int, int, int] | None = None
        self.current = self._first()

    def look(self) -> float:
        """Takes the file if it has changed and is good. Returns in how many seconds to look again."""
        seen, age = self._stat()
        if seen == self._seen:
            return LOOK_SECONDS
        if 0 <= age < SOON_SECONDS:  # An editor may be at it.
            return SOON_SECONDS
        file = _File(self._path, seen)
        if file.version != self.current.version:
            problem = self._verdict(file)
            if problem is None:
                return SOON_SECONDS
            if not problem:
                self.current = load_policy(self._path, file.source)
        self._seen = seen
        return LOOK_SECONDS

    def _stat(self) -> tuple[tuple[int, int, int], float]:
        """What changes with the file, and how many seconds ago it did."""
        try:
            stat = os.stat(self._path)
        except OSError:
            return (0, 0, 0), LOOK_SECONDS
        return (stat.st_mtime_ns, stat.st_ino, stat.st_size), time.time() - stat.st_mtime

    def _verdict(self, file: _File) -> str | None:
        """What is wrong with a version, "" for nothing; None while another process is finding out."""
        known = self._known().get("verdicts", {})
        if file.version not in known:
            with self._table.try_check() as mine:
                if not mine:
                    return None
                known = self._known().get("verdicts", {})  # Another process may have been quicker.
                if file.version not in known:
                    return self._checked(file)
        return str(known[file.version])

    def _checked(self, file: _File) -> str:
        problem = ""
        try:
            file.check(self._check)
        except BadPolicy as bad:
            problem = str(bad)
        self._remember(file, problem)
        if problem:
            logging.error(f"the policy is refused, the last good one serves on: {problem}")
        else:
            logging.warning(f"{self._path}: policy {file.version} takes effect")
        self._counted("refused" if problem else "taken")
        return problem

    def _known(self) -> dict[str, Any]:
        """The verdicts by version and the last good version, as the table has them."""
        return _read_json(self._table.read_text())

    def _remember(self, file: _File, problem: str) -> None:
        def change(text: bytes) -> bytes:
            known = _read_json(text)
            verdicts = {**known.get("verdicts", {}), file.version: problem}
            known["verdicts"] = dict(list(verdicts.items())[-_KEPT_VERDICTS:])
            if not problem:
                known["good"] = base64.b64encode(file.source).decode()
            return json.dumps(known).encode()

        self._table.write_text(change)
        if not problem and self._copy:
            _write_copy(self._copy, file.source)

    def _first(self) -> Policy:
        """The file's policy if it is good, else the last good one."""
        seen, _ = self._stat()
        file = _File(self._path, seen)
        while (problem := self._verdict(file)) is None:
            time.sleep(SOON_SECONDS / 4)
        self._seen = seen
        if not problem:
            return load_policy(self._path, file.source)
        policy = self._last_good()
        if policy is None:
            raise RuntimeError(f"there is no good policy: {problem}")
        logging.error(f"the last good policy, {policy.version}, serves instead of {problem}")
        return policy

    def _last_good(self) -> Policy | None:
        source = base64.b64decode(self._known().get("good", ""))
        if source:
            return load_policy(self._path, source)
        if self._copy is None:
            return None
        try:
            source = read_source(self._copy)
            self._check(self._copy, source)
            return load_policy(self._copy, source)
        except BadPolicy:
            return None


class _File:
    """The policy file as it was found; `seen` tells one unreadable file from the next."""

    def __init__(self, path: Path, seen: tuple[int, int, int]) -> None:
        self._path = path
        self._unreadable: BadPolicy | None = None
        self.source = b""
        try:
            self.source = read_source(path)
            self.version = version_of(self.source)
        except BadPolicy as bad:
            self._unreadable = bad
            self.version = f"unreadable {seen}"

    def check(self, check: Check) -> None:
        if self._unreadable:
            raise self._unreadable
        check(self._path, self.source)


def _read_json(text: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(text or b"{}")
    except ValueError:  # Of a process that was killed over it.
        return {}
    return found


def _write_copy(copy: Path, source: bytes) -> None:
    """Where the folder can be written: a read-only one costs the copy, no more."""
    draft = copy.with_name(f".{copy.name}.{os.getpid()}")
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(source)
        draft.replace(copy)
    except OSError as error:
        logging.warning(f"{copy}: no copy of the last good policy is kept: {error.strerror}")
