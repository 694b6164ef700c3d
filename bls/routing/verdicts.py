"""Whether a version of a policy file is any good: found out once, in a child, by one of the server's router processes.

The verdict goes by the content's hash into the table that all share, and the others follow it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bls.routing.check import check_apart
from bls.routing.policy_file import read_source, version_of
from bls.routing.settings import BadPolicy
from bls.routing.shared_table import SharedTable

Check = Callable[[Path, bytes], None]
_KEPT_VERDICTS = 16


class PolicySource:
    """A policy file as it was found; `seen` tells one unreadable file from the next."""

    def __init__(self, path: Path, seen: object) -> None:
        self.path = path
        self._unreadable: BadPolicy | None = None
        self.source = b""
        try:
            self.source = read_source(path)
            self.version = version_of(self.source)
        except BadPolicy as bad:
            self._unreadable = bad
            self.version = f"unreadable {seen}"

    def problem(self, check: Check) -> str:
        """What is wrong with it; "" for nothing."""
        try:
            if self._unreadable:
                raise self._unreadable
            check(self.path, self.source)
        except BadPolicy as bad:
            return str(bad)
        return ""


class Verdicts:
    """`check` raises BadPolicy; it is called in one process of the server at a time."""

    def __init__(self, table: SharedTable, check: Check = check_apart) -> None:
        self._table = table
        self.check = check

    def find(self, file: PolicySource, checked: Callable[[str], None]) -> str | None:
        """What is wrong with a version, "" for nothing; None while another process is finding out.

        `checked` is told of it in the one process that checked, before the others see it.
        """
        known = self._known()
        if file.version not in known:
            with self._table.try_check() as mine:
                if not mine:
                    return None
                known = self._known()  # Another process may have been quicker.
                if file.version not in known:
                    problem = file.problem(self.check)
                    checked(problem)
                    self._remember(file.version, problem)
                    return problem
        return str(known[file.version])

    def read(self, key: str) -> str:
        """A text that stands beside the verdicts; "" if there is none."""
        return str(_read_json(self._table.read_text()).get(key, ""))

    def write(self, key: str, value: object) -> None:
        self._table.write_text(lambda text: json.dumps({**_read_json(text), key: value}).encode())

    def _known(self) -> dict[str, str]:
        found: dict[str, str] = _read_json(self._table.read_text()).get("verdicts", {})
        return found

    def _remember(self, version: str, problem: str) -> None:
        def change(text: bytes) -> bytes:
            known = _read_json(text)
            verdicts = {**known.get("verdicts", {}), version: problem}
            return json.dumps({**known, "verdicts": dict(list(verdicts.items())[-_KEPT_VERDICTS:])}).encode()

        self._table.write_text(change)


def _read_json(text: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(text or b"{}")
    except ValueError:  # Of a process that was killed over it.
        return {}
    return found
