"""Who may ask: a file of keys' digests, read again whenever it changes. The keys themselves are nowhere.

    # name  sha256  and any of tenant, rpm, tpm, concurrency, priority, monthly_tokens, monthly_cost, models
    alice 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 tenant=acme rpm=60 priority=2

A key has 256 random bits, so a plain digest is as good as a slow one. A file with a mistake is refused by its line, and
the last good one serves on.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import secrets
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gateway.failures import NoKey

PREFIX = "lr-"
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_WORD = re.compile(r"[A-Za-z0-9._@/-]{1,256}")


class BadKeys(Exception):
    """The file can't be used; the message names the line."""


@dataclass(frozen=True)
class Key:
    """Who asks, and what they may. A limit of 0 is none; `priority` 1 is the highest of three.

    `rpm` and `tpm` are requests and tokens a minute, `concurrency` answers at a time, `monthly_*` are of a calendar
    month (UTC), the cost in the unit of the policy's prices. `models`: those that may be named, all if empty.
    """

    name: str
    digest: str = ""
    tenant: str = ""
    rpm: int = 0
    tpm: int = 0
    concurrency: int = 0
    priority: int = 2
    monthly_tokens: int = 0
    monthly_cost: float = 0.0
    models: tuple[str, ...] = ()

    def line(self) -> str:
        """As it stands in the file."""
        given = []
        for name, default in LIMITS.items():
            value = getattr(self, name)
            if value != default:
                given.append(f"{name}={','.join(value) if isinstance(value, tuple) else value}")
        return " ".join([self.name, self.digest, *given])


LIMITS: dict[str, Any] = {field.name: field.default for field in fields(Key) if field.name not in ("name", "digest")}
ANYONE = Key("anonymous")


def new_key() -> tuple[str, str]:
    """A key, to be shown once, and its digest."""
    key = PREFIX + secrets.token_urlsafe(32)
    return key, digest_of(key.encode())


def digest_of(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


def read_line(line: str) -> Key:
    """The key of a line. Raises BadKeys."""
    name, *rest = line.split()
    if not _NAME.fullmatch(name):
        raise BadKeys(f"{name[:64]!r} is no name: letters, digits and ._@- are")
    if not rest or not _DIGEST.fullmatch(rest[0]):
        raise BadKeys(f"{name} has no SHA-256 digest of 64 lower-case hex digits")
    values: dict[str, object] = {}
    for word in rest[1:]:
        option, equals, value = word.partition("=")
        if option not in LIMITS or not equals:
            raise BadKeys(f"{word[:64]!r} of {name} is none of {', '.join(LIMITS)}")
        values[option] = read_limit(option, value)
    return Key(name, rest[0], **values)  # type: ignore[arg-type]


def read_limit(option: str, value: str) -> object:
    """A limit's value as its type. Raises BadKeys."""
    default = LIMITS[option]
    try:
        if isinstance(default, tuple):
            words = tuple(filter(None, value.split(",")))
            if not all(map(_WORD.fullmatch, words)):
                raise ValueError
            return words
        if isinstance(default, str):
            if not _WORD.fullmatch(value):
                raise ValueError
            return value
        number = type(default)(value)
        if not 0 <= number < 10**15 or (option == "priority" and number not in (1, 2, 3)):
            raise ValueError
        return number
    except ValueError:
        raise BadKeys(f"{option} can't be {value[:64]!r}") from None


def read_file(path: Path) -> list[Key]:
    """The keys of a file, in its order. Raises BadKeys, which names the line, also for a file that can't be read."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadKeys(f"{path}: {getattr(error, 'strerror', None) or 'it is not text'}") from None
    found: list[Key] = []
    for number, line in enumerate(lines, start=1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        try:
            key = read_line(line)
            if key.name in (other.name for other in found):
                raise BadKeys(f"there is another key named {key.name}")
        except BadKeys as error:
            raise BadKeys(f"{path}:{number}: {error}") from None
        found.append(key)
    return found


class Keys:
    """The keys in force. Without a file, anyone is let in, as ANYONE."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen: object = None
        self._by_digest: dict[str, Key] = {}
        if path is not None:
            self._seen = _state_of(path)
            self._by_digest = {key.digest: key for key in read_file(path)}

    def refresh(self) -> None:
        """Reads the file again if it has changed."""
        if self._path is None or (state := _state_of(self._path)) == self._seen:
            return
        self._seen = state
        try:
            self._by_digest = {key.digest: key for key in read_file(self._path)}
            logging.info("keys: %d are in force", len(self._by_digest))
        except BadKeys as error:
            logging.error("keys: the file is refused, the keys read before it stay in force: %s", error)

    def find(self, headers: Mapping[bytes, bytes]) -> Key:
        """Whose the request is. Raises NoKey."""
        if self._path is None:
            return ANYONE
        given = _given_key(headers)
        if not given:
            raise NoKey("there is no API key: send it as `Authorization: Bearer KEY`")
        digest = digest_of(given)
        key = self._by_digest.get(digest)
        if key is None or not hmac.compare_digest(key.digest, digest):
            raise NoKey("the API key is not known")
        return key


def _given_key(headers: Mapping[bytes, bytes]) -> bytes:
    """From `Authorization: Bearer`, `x-api-key`, or the password of a browser's dialogue."""
    scheme, _, value = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return value.strip()
    if scheme.lower() == b"basic":
        try:
            return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
        except Base64Error:
            return b""
    return headers.get(b"x-api-key", b"").strip()


def _state_of(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
