"""Token ids to text, a piece at a time, inside the router: no tokenizer library, only a memory-mapped table.

The table is built and proved equal to the tokenizer by `bls.token_bytes_build`, in a process that has the tokenizer.
All router processes share its pages. Joined, the pieces of a stream are what the tokenizer's own decode gives for all
ids at once, wherever the stream was cut; no piece holds half a character.

File: a magic, the length of a JSON header, the header, then the offsets (u32, one more than ids), the ids' kinds (u8)
and the ids' bytes.
"""

from __future__ import annotations

import codecs
import json
import mmap
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bls.manifest import Manifest

MAGIC = b"TOKBYTE1"
# How the tokenizer joins tokens: see the class of each.
BYTE_LEVEL, BYTE_FALLBACK, SENTENCEPIECE, UNSUPPORTED = "byte_level", "byte_fallback", "sentencepiece", "unsupported"
# Kinds of ids.
TEXT, BYTE, SPECIAL, ABSENT, UNKNOWN = 0, 1, 2, 3, 4

_PREFIX = struct.Struct("<8sI")
_REPLACEMENT = "\ufffd"


class BadTable(ValueError):
    """The table is missing, stale or damaged; the message names the file."""


@dataclass(frozen=True)
class Header:
    """`sha256` is the tokenizer's; `reason` says why a table is UNSUPPORTED; `strip_left` counts spaces that the
    tokenizer takes off the start of a text; `strips_all` is SentencePiece's remove_extra_whitespaces."""

    sha256: str
    joins: str
    vocab_size: int
    strip_left: int = 0
    strips_all: bool = False
    reason: str = ""
    builder_version: int = 1


class TokenBytes:
    """One open table; make a decoder of it for each stream. Safe to share between threads."""

    def __init__(self, header: Header, offsets: memoryview, kinds: memoryview, data: mmap.mmap | bytes, start: int) -> None:
        self.header = header
        self._offsets = offsets
        self._kinds = kinds
        self._data = data
        self._start = start

    @property
    def is_supported(self) -> bool:
        """False where the tokenizer's decode can't be had from a table: use WindowDecoder."""
        return self.header.joins != UNSUPPORTED

    def decoder(self, skip_special_tokens: bool = True) -> StreamDecoder:
        """Raises BadTable if the table isn't supported."""
        decoder = _DECODERS.get(self.header.joins)
        if decoder is None:
            raise BadTable(f"no table for this tokenizer: {self.header.reason}")
        return decoder(self, skip_special_tokens)

    def kind(self, token: int) -> int:
        """ABSENT outside of the vocabulary."""
        return self._kinds[token] if 0 <= token < self.header.vocab_size else ABSENT

    def piece(self, token: int) -> bytes:
        """The bytes of a token that isn't ABSENT."""
        return self._data[self._start + self._offsets[token] : self._start + self._offsets[token + 1]]


class StreamDecoder(ABC):
    """The text of one stream of ids. Not for more than one thread."""

    @abstractmethod
    def push(self, ids: Sequence[int]) -> str:
        """What became certain with these ids: possibly "", never a part of a character."""

    @abstractmethod
    def finish(self) -> str:
        """What was held back; bytes that no character came of are U+FFFD now. Call it once, last."""


class _ByteLevelDecoder(StreamDecoder):
    """Tokens are bytes: all of them joined are decoded, U+FFFD for each broken sequence."""

    def __init__(self, table: TokenBytes, skip_special_tokens: bool) -> None:
        self._offsets, self._kinds, self._data = table._offsets, table._kinds, table._data
        self._start, self._vocab_size = table._start, table.header.vocab_size
        self._hidden = (SPECIAL, ABSENT) if skip_special_tokens else (ABSENT,)
        self._held = b""

    def push(self, ids: Sequence[int]) -> str:
        held, offsets, kinds, data, start = self._held, self._offsets, self._kinds, self._data, self._start
        for token in ids:
            if 0 <= token < self._vocab_size and kinds[token] not in self._hidden:
                held += data[start + offsets[token] : start + offsets[token + 1]]
        text, used = codecs.utf_8_decode(held, "replace", False)
        self._held = held[used:]
        return text

    def finish(self) -> str:
        return codecs.utf_8_decode(self._held, "replace", True)[0]


class _ByteFallbackDecoder(StreamDecoder):
    """Hugging Face's Replace, ByteFallback, Fuse, Strip: a run of byte tokens that isn't UTF-8 as a whole becomes one
    U+FFFD per byte, so a run is held until a text token ends it."""

    def __init__(self, table: TokenBytes, skip_special_tokens: bool) -> None:
        self._table = table
        self._hidden = (SPECIAL, ABSENT) if skip_special_tokens else (ABSENT,)
        self._run: list[bytes] = []
        self._to_strip = table.header.strip_left

    def push(self, ids: Sequence[int]) -> str:
        table, pieces = self._table, []
        for token in ids:
            kind = table.kind(token)
            if kind == BYTE:
                self._run.append(table.piece(token))
            elif kind not in self._hidden:
                if self._run:
                    pieces.append(self._end_run())
                pieces.append(table.piece(token).decode())
        text = "".join(pieces)
        return self._strip(text) if self._to_strip else text

    def finish(self) -> str:
        return self._strip(self._end_run())

    def _end_run(self) -> str:
        run = b"".join(self._run)
        self._run = []
        try:
            return run.decode()
        except UnicodeDecodeError:
            return _REPLACEMENT * len(run)

    def _strip(self, text: str) -> str:
        while self._to_strip and text:
            if text[0] != " ":
                self._to_strip = 0
                break
            text, self._to_strip = text[1:], self._to_strip - 1
        return text


class _SentencePieceDecoder(StreamDecoder):
    """SentencePiece's own rules (0.2): in a run of byte pieces each byte that is no part of a character becomes U+FFFD;
    leading spaces are taken off the first pieces; a control piece, if shown, begins a new sentence."""

    def __init__(self, table: TokenBytes, skip_special_tokens: bool) -> None:
        self._table = table
        self._shows_special = not skip_special_tokens
        self._new_sentence()

    def _new_sentence(self) -> None:
        self._held = b""
        self._at_start = self._table.header.strip_left > 0
        self._took_space = self._wrote = False

    def push(self, ids: Sequence[int]) -> str:
        table, pieces = self._table, []
        for token in ids:
            kind = table.kind(token)
            if kind == ABSENT:
                continue
            if kind == BYTE:
                text, used = codecs.utf_8_decode(self._held + table.piece(token), _EACH_BYTE, False)
                self._held = (self._held + table.piece(token))[used:]
                self._wrote = self._wrote or bool(text)
                pieces.append(text)
                continue
            if self._held:
                pieces.append(self._end_run())
            if kind == SPECIAL and self._shows_special:
                pieces.append(table.piece(token).decode())
                self._new_sentence()
            else:
                text = "" if kind == SPECIAL else table.piece(token).decode()
                pieces.append(self._strip(text, kind) if self._at_start else text)
        return "".join(pieces)

    def finish(self) -> str:
        return self._end_run()

    def _end_run(self) -> str:
        text = codecs.utf_8_decode(self._held, _EACH_BYTE, True)[0]
        self._held = b""
        self._wrote = self._wrote or bool(text)
        return text

    def _strip(self, text: str, kind: int) -> str:
        if self._wrote or self._took_space:
            self._at_start = False
        elif kind == TEXT and text.startswith(" "):
            text = text[1:]
            self._took_space = not self._table.header.strips_all
        self._wrote = self._wrote or bool(text)
        return text


class WindowDecoder(StreamDecoder):
    """For a tokenizer that no table can stand for: asks `decode` for the last few tokens with and without the new ones.

    Constant work per token. It equals the whole decode where a token's text depends on a few tokens before it only.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], context_tokens: int = 6) -> None:
        self._decode = decode
        self._context_tokens = context_tokens
        self._ids: list[int] = []
        self._shown = 0  # How many of _ids are in text that was given out; the rest was held.

    def push(self, ids: Sequence[int]) -> str:
        self._ids += ids
        text = self._new_text()
        # A character may still be growing at the end; more than a few tokens long it is not, it's broken.
        if text.endswith(_REPLACEMENT) and len(self._ids) - self._shown <= self._context_tokens:
            return ""
        self._ids = self._ids[-self._context_tokens :] if text else self._ids
        self._shown = len(self._ids) if text else self._shown
        return text

    def finish(self) -> str:
        return self._new_text()

    def _new_text(self) -> str:
        if len(self._ids) == self._shown:
            return ""
        before = self._decode(self._ids[: self._shown]) if self._shown else ""
        return self._decode(self._ids)[len(before) :]


def open_table(path: Path, sha256: str | None = None) -> TokenBytes:
    """Costs next to nothing, whatever the size. Raises BadTable, also if `sha256` is given and isn't the tokenizer's."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header, start = read_header(data)
        ids = header.vocab_size
        kinds = start + 4 * (ids + 1)
        view = memoryview(data)
        offsets = view[start:kinds].cast("I")
        if kinds + ids + offsets[ids] != len(data):
            raise ValueError("its size is not what its header says")
    except FileNotFoundError:
        raise BadTable(f"{path} is missing: the model `preprocessing` builds it when it loads") from None
    except (OSError, ValueError, TypeError, IndexError, struct.error) as error:
        raise BadTable(f"{path}: not a readable token table: {error}") from None
    if sha256 is not None and header.sha256 != sha256:
        raise BadTable(f"{path} is of another tokenizer: reload the model `preprocessing`")
    return TokenBytes(header, offsets, view[kinds : kinds + ids], data, kinds + ids)


def read_header(data: Any) -> tuple[Header, int]:
    """The header and where the offsets begin. Raises ValueError, TypeError or struct.error."""
    magic, size = _PREFIX.unpack(data[: _PREFIX.size])
    if magic != MAGIC:
        raise ValueError("its magic is wrong")
    return Header(**json.loads(data[_PREFIX.size : _PREFIX.size + size])), _PREFIX.size + size


def serialize(header: Header, kinds: Sequence[int], pieces: Sequence[bytes]) -> bytes:
    """The whole file."""
    text = json.dumps(header.__dict__).encode()
    text += b" " * (-(_PREFIX.size + len(text)) % 8)  # The offsets are read in place, so they are aligned.
    offsets, end = [0], 0
    for piece in pieces:
        end += len(piece)
        offsets.append(end)
    prefix = _PREFIX.pack(MAGIC, len(text)) + text
    return prefix + struct.pack(f"<{len(offsets)}I", *offsets) + bytes(kinds) + b"".join(pieces)


def build(manifest: Manifest) -> TokenBytes:
    """Makes sure that the manifest's table is there and current, and opens it. Loads the tokenizer library if it isn't."""
    from bls import token_bytes_build

    return token_bytes_build.ensure(manifest)


def _each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return _REPLACEMENT * (error.end - error.start), error.end


_EACH_BYTE = "token_bytes.each_byte"
codecs.register_error(_EACH_BYTE, _each_byte)

_DECODERS: dict[str, Callable[[TokenBytes, bool], StreamDecoder]] = {
    BYTE_LEVEL: _ByteLevelDecoder,
    BYTE_FALLBACK: _ByteFallbackDecoder,
    SENTENCEPIECE: _SentencePieceDecoder,
}
