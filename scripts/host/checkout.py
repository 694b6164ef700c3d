"""Where the parts of a set-up lie in a checkout, and which of them are missing."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from bls.paths import ROOT, WORDS_VARIABLE
from bls.tiers import tiers
from engines.classifier import manifest as text_manifest
from engines.classifier.manifest import CLASSIFIER

LAYOUT = 1  # raised when what scripts/environment.py makes changes, so that old set-ups are made anew


class Checkout:
    """One checkout of this repository. The paths are valid once scripts/environment.py has made what they name."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.log = root / "logs" / "setup.log"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        return self.venv / "lib" / "python{}.{}".format(*sys.version_info[:2]) / "site-packages"

    @property
    def tritonserver(self) -> Path:
        return self.site_packages / "pytriton" / "tritonserver" / "bin" / "tritonserver"

    @property
    def backends(self) -> Path:
        """For --backend-directory."""
        return self.venv / "tritonserver" / "backends"

    @property
    def libraries(self) -> list[Path]:
        """For LD_LIBRARY_PATH: the server's own libraries and libpython, which the stubs need."""
        return [self.site_packages / "nvidia_pytriton.libs", self.venv / "tritonserver" / "lib"]

    @property
    def compiled_words(self) -> Path:
        """What the routers map; see words/README.md."""
        return self.root / "words" / "compiled.bin"

    def variables(self) -> dict[str, str]:
        """The environment of tritonserver and of whatever runs this project's Python; said only here."""
        dropped = ("PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV")
        return {
            **{name: value for name, value in os.environ.items() if name not in dropped},
            # The stub finds its packages through the first python3.
            "PATH": f"{self.venv / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONPATH": str(self.root),
            "PYTHONDONTWRITEBYTECODE": "1",  # a new __pycache__ would look like an edited model
            "PYTHONUNBUFFERED": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }

    def is_complete(self, dev: bool) -> bool:
        """Whether the packages are those of the lock files; engines are looked at one by one."""
        stamps = [self.stamp("complete"), *([self.stamp("complete-dev")] if dev else [])]
        return all(path.is_file() and path.read_text() == text for path, text in stamps)

    def missing_engines(self) -> list[str]:
        built = self.root / "engines" / "built"
        missing = [
            tier for tier in tiers(self.root / "model_repository") if not (built / tier / "engine.json").is_file()
        ]
        return missing if text_manifest.is_built(built / CLASSIFIER) else [*missing, CLASSIFIER]

    def needs_words(self) -> bool:
        """Whether words/ or the code that compiles it has changed since it was compiled.

        Not where WORDS_VARIABLE names another folder: whoever fills it compiles it.
        """
        if os.environ.get(WORDS_VARIABLE):
            return False
        words, compiler = self.root / "words", self.root / "bls" / "words"
        try:
            compiled = self.compiled_words.stat().st_mtime
        except OSError:
            return True
        lists = [
            path
            for folder in map(words.joinpath, ("deny", "allow", "patterns"))
            for path in (folder, *folder.glob("*"))
        ]
        sources = [words / "categories.toml", *lists, *compiler.rglob("*.py"), *(compiler / "data").glob("*")]
        return any(path.stat().st_mtime > compiled for path in sources if path.exists())

    def stamp(self, name: str) -> tuple[Path, str]:
        """A stamp's file and what it holds if it is right."""
        lock = self.root / ("requirements-dev.txt" if name.endswith("dev") else "requirements.txt")
        made_from = f"{LAYOUT}\n{sys.base_prefix}\n{sys.version_info[:2]}\n".encode() + lock.read_bytes()
        return self.venv / name, hashlib.sha256(made_from).hexdigest()
