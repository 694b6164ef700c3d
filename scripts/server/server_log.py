"""Reads tritonserver's log while it is written: which models are loaded, which failed and why, what else went wrong."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LOADED = re.compile(r"successfully loaded '([^']+)'")
_FAILED = (
    re.compile(r"failed to load '([^']+)' version \d+: (.*)"),
    re.compile(r"Poll failed for model directory '([^']+)': (.*)"),
    re.compile(r"failed to poll model '([^']+)': (.*)"),
    re.compile(r"load failed for model '([^']+)': version \d+ is at UNAVAILABLE state: (.*)"),
)
_CODE = re.compile(r"^(?:Internal|Invalid argument|Not found|Unavailable|Unsupported): ")
_ERROR = re.compile(r'^(?:E\d{4} \S+ \d+ \S+\] "?|[Ee]rror: |\S*/tritonserver: )(.*?)"?$')
_BAD_OPTION = re.compile(r'^Bad option: "(.*)"\.$')  # the next line is the reason
_CONNECTIONS = re.compile(r"Found (\d+) HTTP service connections")
_LIVE_MODELS = re.compile(r"Found (\d+) live models")
_BAD_PROTOBUF = re.compile(r"^\[libprotobuf ERROR .*\] (.*)")
# What mpirun says when a rank has ended; Open MPI 4 and 5.
_MPI_SIGNAL = re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on (signal \d+ \(.*?\))")
_MPI_PROCESS = re.compile(r"^\s*Process name: \[.*,(\d+)\]")
_MPI_CODE = re.compile(r"^\s*Exit code:\s+(\d+)")
_MPI_SLOTS = re.compile(r"not enough slots|already filled")
# Said by every server without a GPU.
_HARMLESS = (
    "CudaDriverHelper has not been initialized",
    "Failed to initialize NVML",
    "unable to create stream for",  # an ensemble whose member was loaded anew
)


@dataclass(frozen=True)
class Loaded:
    """A model was loaded."""

    model: str


@dataclass(frozen=True)
class Failed:
    """A model could not be loaded; `reason` is one line."""

    model: str
    reason: str


@dataclass(frozen=True)
class Stopping:
    """Where the server is in its stop: first it waits for HTTP connections to close, then for models to unload."""

    connections: int = 0
    live_models: int = 0

    @property
    def status(self) -> str:
        """For a person; "" where there is nothing to say."""
        if self.connections:
            return f"HTTP connections still open: {self.connections}"
        return f"models still loaded: {self.live_models}" if self.live_models else ""


@dataclass(frozen=True)
class Trouble:
    """Another error of the server."""

    text: str


Event = Loaded | Failed | Stopping | Trouble


class ServerLog:
    """Follows the log at `path` from its beginning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._pending = b""
        self._bad_protobuf = ""
        self._bad_option = ""
        self._mpi_rank = ""

    def events(self) -> list[Event]:
        """What the lines written since the last call say."""
        found = (self._event(line) for line in self._new_lines())
        return [event for event in found if event]

    def keep_below(self, size: int) -> None:
        """Moves a log of `size` bytes or more to <name>.1 and empties it; what is written in that moment is lost.

        The server appends, so it writes on at the beginning. On a full disk there is no copy.
        """
        with suppress(OSError):
            if self.path.stat().st_size >= size:
                with suppress(OSError):
                    shutil.copyfile(self.path, self.path.with_name(self.path.name + ".1"))
                os.truncate(self.path, 0)
                self._offset = 0

    def is_disk_full(self) -> bool:
        """Whether nothing more can be written to it, so that it tells nothing any more."""
        try:
            return os.statvfs(self.path).f_bavail == 0
        except OSError:
            return False

    def _new_lines(self) -> list[str]:
        try:
            with self.path.open("rb") as file:
                self._offset = min(self._offset, file.seek(0, os.SEEK_END))  # somebody may have emptied it
                file.seek(self._offset)
                read = file.read()
        except OSError:  # or moved it away
            return []
        self._offset += len(read)
        *lines, self._pending = (self._pending + read).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def _event(self, line: str) -> Event | None:
        if bad := _BAD_PROTOBUF.match(line):
            self._bad_protobuf = bad[1].rstrip(".").replace("Error parsing text-format inference.ModelConfig: ", "")
            return None
        if self._bad_option:
            option, self._bad_option = self._bad_option, ""
            return Trouble(f"{option}: {line}")
        if bad := _BAD_OPTION.match(line):
            self._bad_option = bad[1]
            return None
        if loaded := _LOADED.search(line):
            return Loaded(loaded[1])
        if open_ones := _CONNECTIONS.search(line):
            return Stopping(connections=int(open_ones[1]))
        if live := _LIVE_MODELS.search(line):
            return Stopping(live_models=int(live[1]))
        if failed := next(filter(None, (pattern.search(line) for pattern in _FAILED)), None):
            return Failed(failed[1], self._reason(failed[2]))
        if trouble := self._mpi_trouble(line):
            return Trouble(trouble)
        if (error := _ERROR.match(line)) and not any(words in line for words in _HARMLESS):
            return Trouble(_first_line(error[1]))
        return None

    def _mpi_trouble(self, line: str) -> str:
        if killed := _MPI_SIGNAL.search(line):
            return f"rank {killed[1]} was killed by {killed[2]}"
        if process := _MPI_PROCESS.match(line):
            self._mpi_rank = process[1]
        elif self._mpi_rank and (code := _MPI_CODE.match(line)):
            return f"rank {self._mpi_rank} ended with exit status {code[1]}"
        return "mpirun has fewer slots than ranks: use --oversubscribe" if _MPI_SLOTS.search(line) else ""

    def _reason(self, text: str) -> str:
        reason = _CODE.sub("", _first_line(text.removesuffix('"')))
        if self._bad_protobuf and "text proto" in reason:
            reason = f"{reason}, at line:column {self._bad_protobuf}"
        return reason


def _first_line(text: str) -> str:
    """Python's errors come with their traceback, its line ends escaped."""
    return text.split("\\n", 1)[0].strip()
