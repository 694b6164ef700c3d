"""scripts/words watch: compiles the lists whenever they change, for folders that somebody else writes.

In Kubernetes the lists are a ConfigMap: kubelet makes a new folder, then turns the link `..data` to it, through which
every list is reached, and removes the old one. So what is compiled is what was there before and after the reading.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from bls.words import lists as word_list
from bls.words.compiler import compile_lists
from bls.words.list_files import list_paths
from bls.words.lists import ListError, Problem, WordLists

LOOK_S = 1.0
FOLDERS = ("deny", "allow", "patterns")
State = tuple[tuple[str, int, int, int], ...]


class Watch:
    """Keeps `target` compiled of the lists in `folder`; `say` gets a line for every change, and the problems of one."""

    def __init__(self, folder: Path, target: Path, say: Callable[[str], None]) -> None:
        self._folder, self._target, self._say = folder, target, say
        self._seen: State | None = None

    def look(self) -> None:
        """Compiles if the lists have changed since the last look. Bad ones are told, and leave the file as it was."""
        lists, problems = WordLists(), list[Problem]()
        try:
            before = state(self._folder)
            if before == self._seen:
                return
            lists = word_list.read(self._folder)
        except ListError as error:
            problems = error.problems
        except OSError:  # They are changing: the next look finds the new ones.
            return
        if _state_or_none(self._folder) != before:
            return
        if problems:
            self._seen = before
            self._say("\n".join(map(str, problems)))
            self._say(f"{len(problems)} problem{'s' * (len(problems) > 1)}; the compiled file stays as it was")
            return
        try:
            version = compile_lists(lists, self._target)
        except OSError as error:  # a full disk: the next look tries again
            self._say(f"{self._target}: {error.strerror}")
            return
        self._seen = before
        self._say(f"{self._target}: version {version}")

    def run(self, ended: threading.Event) -> None:
        while not ended.is_set():
            self.look()
            ended.wait(LOOK_S)


def state(folder: Path) -> State:
    """What changes with any of the lists. Raises OSError for one that is gone meanwhile."""
    paths = [path for name in FOLDERS for path in list_paths(folder / name)]
    found = [(path, path.stat()) for path in (*paths, folder / "categories.toml") if path.exists()]
    return tuple((str(path), stat.st_mtime_ns, stat.st_ino, stat.st_size) for path, stat in found)


def _state_or_none(folder: Path) -> State | None:
    try:
        return state(folder)
    except OSError:
        return None


def until_told(folder: Path, target: Path) -> int:
    """Watches until SIGTERM or SIGINT."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    Watch(folder, target, lambda text: print(text, file=sys.stderr, flush=True)).run(ended)
    return 0
