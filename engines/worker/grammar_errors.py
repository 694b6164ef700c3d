"""What xgrammar says of a wrong grammar, for a client to read."""

from __future__ import annotations

import re

_SOURCE_FILE = re.compile(r"\[[\d:]+\] \S+?:\d+: (Check failed: \(.*?\) is false: )?")


def reason(error: Exception) -> str:
    """The message without xgrammar's own source file and line."""
    return _SOURCE_FILE.sub("", str(error)).strip()
