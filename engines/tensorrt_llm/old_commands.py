"""Reads a command of an older article, says what became of each of its flags, and gives today's commands for it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from engines.tensorrt_llm import flags, old_flags, paste, shell_text
from engines.tensorrt_llm.commands import EXAMPLES, Command
from engines.tensorrt_llm.flags import BadCommand, Flag
from engines.tensorrt_llm.model_config import family_in, other_family
from engines.tensorrt_llm.old_flags import Successor
from engines.tensorrt_llm.shell_text import Given

# The programs that are read, and to which of today's an unchanged flag goes: the first that takes it.
_READS = {
    "trtllm-build": ("build",),
    "build.py": ("build", "convert"),
    "convert_checkpoint.py": ("convert",),
    "quantize.py": ("quantize",),
}
_ALIASES = {"tensorrt_llm.commands.build": "trtllm-build"}  # python -m
_STARTERS = ("python", "python3", "python.exe", "-m", "-u")
_CALL = re.compile(r"^[\w.]+\((.*)\)$", re.DOTALL)
_STARTS = re.compile(r"\btritonserver\s+-|launch_triton_server\.py")
_SERVES = re.compile(r"trtllm-(serve|bench|eval|llmapi-launch)")
_MAY_BUILD = re.compile(r"^trtllm-\w|^tensorrt_llm\.|(^|[/_-])(\w*convert\w*|build\w*|quantize\w*|\w*export\w*)\.py$")
MODEL_DIR, CHECKPOINT_DIR, LENGTH = "MODEL_DIR", "tllm_checkpoint", "max_input_len"


@dataclass(frozen=True)
class Fate:
    """What became of one flag. `gone` is the version that no longer takes it, "deprecated", "changed" and a version, or
    "never there"; `is_wrong` if it is unknown, or was never so: then it has no part in today's commands."""

    flag: str
    gone: str
    text: str
    is_wrong: bool = False


@dataclass
class Today:
    """The flags of one of today's programs, gathered from the old command."""

    words: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def put(self, name: str, *values: str | None, over: bool = True) -> None:
        if over or name not in self.words:
            self.words[name] = tuple(value for value in values if value is not None)

    def arguments(self, order: Sequence[str]) -> tuple[str, ...]:
        """In the order of the program's own flags."""
        names = sorted(self.words, key=order.index)
        return tuple(word for name in names for word in (f"--{name}", *self.words[name]))


@dataclass(frozen=True)
class Explanation:
    """`program` as in _READS; `fates` in the order of the command; `commands` are what does the same today, by llama's
    scripts if the family is a guess. `before` is what stands in front of the program; `strange` a family whose
    conversion isn't known here, so that no command does it."""

    program: str
    fates: tuple[Fate, ...]
    commands: tuple[Command, ...]
    family_is_guess: bool = False
    before: str = ""
    strange: str = ""

    @property
    def has_wrong(self) -> bool:
        return any(fate.is_wrong for fate in self.fates)


@dataclass(frozen=True)
class Other:
    """A command that isn't explained; `why` says so, and `is_wrong` if it may have made an engine or a checkpoint."""

    text: str
    why: str = ""
    is_wrong: bool = False


@dataclass
class Reading:
    """All of a paste: what is explained, and what is not."""

    explanations: list[Explanation] = field(default_factory=list)
    others: list[Other] = field(default_factory=list)


def explain(text: str) -> list[Explanation]:
    """One of each command of _READS in `text`, a piece of a shell script. Raises BadCommand if there is none."""
    found = read(text).explanations
    if not found:
        said = f"a command of {', '.join(_READS)} can be explained, but there is none in {text.strip()!r}"
        hint = "; scripts/serve takes the flags of such a line, or says where they are set today"
        raise BadCommand(said + (hint if _STARTS.search(text) else ""))
    return found


def read(text: str) -> Reading:
    """The same with all that isn't explained, so that nothing of a paste is dropped. Raises BadCommand if there are
    commands of _READS and none can be read. What is given as today's commands keeps to the table of flags."""
    found = Reading()
    problem: BadCommand | None = None
    for line in paste.commands(text):
        try:
            _read_line(line, found)
        except BadCommand as error:
            problem = problem or error
            found.others.append(Other(line, str(error), is_wrong=True))
    if problem and not found.explanations:
        raise problem
    return found


def _read_line(line: str, found: Reading) -> None:
    try:
        words = shell_text.words(line)
    except BadCommand:
        if any(program in line for program in _READS):
            raise
        words = line.split()
    for place, word in enumerate(words):
        program = _ALIASES.get(word, word.rpartition("/")[2])
        if program in _READS:
            before = shlex.join(word for word in words[:place] if word not in _STARTERS)
            found.explanations.append(_explained(program, word, line, words[place + 1 :], before))
            return
        if " " in word and any(known in word for known in (*_READS, *_ALIASES)):  # bash -lc "...", os.system("...")
            inner = read(_CALL.sub(r"\1", word))
            found.explanations += inner.explanations
            found.others += [*([Other(shlex.join(words[:place]))] if place else []), *inner.others]
            return
    found.others.append(_other(line, words))


def _explained(program: str, word: str, line: str, arguments: Sequence[str], before: str) -> Explanation:
    family, other = family_in(word) or family_in(line), other_family(word, line)
    if other and "convert" in _READS[program]:
        reader = _Reader(program, "llama", list(shell_text.given(program, arguments)), strange=other)
        return Explanation(program, tuple(reader.fates()), tuple(reader.commands()), before=before, strange=other)
    reader = _Reader(program, family or "llama", list(shell_text.given(program, arguments)))
    fates, commands = tuple(reader.fates()), tuple(reader.commands())
    converts = any(command.program in flags.CONVERT.values() for command in commands)
    return Explanation(program, fates, commands, converts and not family, before)


def _other(line: str, words: Sequence[str]) -> Other:
    for word in words:
        if _SERVES.fullmatch(word):
            return Other(line, f"{word} builds no engine")
        if _MAY_BUILD.search(word):
            known = ", ".join(_READS)
            return Other(line, f"{word} is not known here; {known} are", is_wrong=True)
    return Other(line)


class _Reader:
    """Goes through the flags of one command."""

    def __init__(self, program: str, family: str, given: Sequence[Given], strange: str = "") -> None:
        self._program, self._given, self._strange = program, given, strange
        self._targets = tuple(target for target in _READS[program] if not strange or target != "convert")
        self._keys = {"build": flags.BUILD, "convert": flags.CONVERT[family], "quantize": flags.QUANTIZE}
        self._values = {each.name: each.value for each in given}
        self._today = {target: Today() for target in old_flags.TARGETS}

    def fates(self) -> list[Fate]:
        """To be called before `commands`."""
        found = [self._fate(given) for given in self._given]
        if not self._quantises:
            return found
        lost = set(self._today["convert"].words) - set(self._flags("quantize"))
        left_out = "here quantize.py converts, and it has no such flag"
        return [
            Fate(fate.flag, fate.gone, left_out, is_wrong=True) if given.name in lost else fate
            for given, fate in zip(self._given, found, strict=True)
        ]

    @property
    def _quantises(self) -> bool:
        """Whether quantize.py does the work of convert_checkpoint.py, which a build.py did before."""
        return bool(self._today["quantize"].words) and "convert" in self._targets

    def _fate(self, given: Given) -> Fate:
        old, target = old_flags.known().get(given.name), self._target_of(given.name)
        # A flag may be gone from one program and be another one's today.
        if old is not None and (target is None or self._program in old.over):
            changed = [change for successor in old.becomes for change in self._follow(given, successor)]
            now = f"now {' and '.join(changed)}: " if changed else ""
            return Fate(given.text, old.gone, now + old.why)
        return self._unknown(given) if target is None else self._kept(given, target)

    def _follow(self, given: Given, successor: Successor) -> Iterator[str]:
        """Puts the successor among today's flags; yields it as text."""
        value = self._ruled(given, successor)
        flag = self._flags(successor.to).get(successor.flag)
        if flag is None or (self._strange and successor.to == "convert"):  # of the other family's script
            return
        of = self._of(successor.to)
        if flag.kind == "switch":
            self._today[successor.to].put(successor.flag, over=False)
            yield f"--{successor.flag}{of}"
        elif value is not None and _complaint(flag, (value,)) is None:
            self._today[successor.to].put(successor.flag, value, over=not successor.default and not successor.value)
            yield f"--{successor.flag} {value}{of}"

    def _of(self, target: str) -> str:
        program = self._keys[target].rpartition("/")[2]
        return "" if program == self._program else f" of {program}"

    def _ruled(self, given: Given, successor: Successor) -> str | None:
        if successor.rule == "sum":
            # trtllm-build's own default of max_input_len is 1024, as build.py's was at the time.
            return _sum(self._values.get(LENGTH) or "1024", given.value)
        if successor.rule == "ranks":
            if given.name == "world_size":
                return None if {"tp_size", "pp_size"} & set(self._values) else given.value
            return self._values.get("world_size")
        return successor.value_of(given.value)

    def _kept(self, given: Given, target: str) -> Fate:
        flag = self._flags(target)[given.name]
        values = given.values
        if not values and "enable" in flag.choices:
            self._today[target].put(given.name, "enable", over=False)
            now = f"now --{given.name} enable{self._of(target)}"
            return Fate(given.text, "changed by 0.10", f"{now}: it takes a value, enable or disable")
        complaint = _complaint(flag, values)
        if complaint:
            return Fate(given.text, "", complaint, is_wrong=True)
        self._today[target].put(given.name, *values)
        if given.spelt != given.name:
            return Fate(given.text, "changed", f"now --{given.name}: these programs take underscores alone")
        return Fate(given.text, "", "as before")

    def _unknown(self, given: Given) -> Fate:
        if self._strange:
            return Fate(
                given.text, "", f"a flag of {self._strange}'s own script, which is not known here", is_wrong=True
            )
        others = [key for key in self._keys if given.name in self._flags(key)]
        if others:
            name = self._keys[others[0]].rpartition("/")[2]
            return Fate(given.text, "", f"a flag of {name}, not of this program", is_wrong=True)
        known = [*old_flags.known(), *(name for target in self._targets for name in self._flags(target))]
        near = get_close_matches(given.name, known, n=1)
        hint = f"; did you mean --{near[0]}?" if near else ""
        return Fate(given.text, "", f"not a flag of any version that is known here{hint}", is_wrong=True)

    def _target_of(self, name: str) -> str | None:
        return next((target for target in self._targets if name in self._flags(target)), None)

    def _flags(self, target: str) -> Mapping[str, Flag]:
        return flags.programs()[self._keys[target]].flags

    def commands(self) -> Iterator[Command]:
        """First what makes the checkpoint, if the command has a say in it; then the engine."""
        build, convert, quantize = (self._today[target] for target in old_flags.TARGETS)
        if self._quantises:
            known = self._flags("quantize")
            convert.words = {name: values for name, values in convert.words.items() if name in known}
            quantize.words = {**convert.words, **quantize.words}
            convert.words = {}
        builds = "build" in self._targets
        for target, today in (("quantize", quantize), ("convert", convert)):
            if today.words:
                today.put("model_dir", MODEL_DIR, over=False)
                if builds:
                    checkpoint = build.words.get("checkpoint_dir", (CHECKPOINT_DIR,))[0]
                    today.put("output_dir", checkpoint)
                    build.put("checkpoint_dir", checkpoint, over=False)
                yield self._command(target, today)
        if builds:
            yield self._command("build", build)

    def _command(self, target: str, today: Today) -> Command:
        key = self._keys[target]
        start = (key,) if target == "build" else ("python3", str(EXAMPLES / Path(key)))
        command = Command(key, start, today.arguments(list(self._flags(target))))
        command.check()
        return command


def _sum(first: str, second: str | None) -> str | None:
    return str(int(first) + int(second)) if first.isdigit() and second and second.isdigit() else None


def _complaint(flag: Flag, values: Sequence[str]) -> str | None:
    """What the program would say of the flag with these values, None if nothing."""
    program = flags.Program("", (), {flag.name: flag})
    try:
        program.check([f"--{flag.name}", *values])
    except BadCommand as error:
        return str(error).rpartition(f"argument {'/'.join(flag.names)}: ")[2]
    return None
