"""The model's files as OpenVINO GenAI takes them, checked for what it would answer with a crash."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bls.manifest import BadManifest, Manifest
from bls.tokens import gguf


@contextmanager
def readable_model(manifest: Manifest) -> Iterator[str]:
    """A GGUF file by its name; an OpenVINO model by its folder, where its tokenizer is too.

    Raises BadManifest for what was built for GPUs, and for a GGUF file that is damaged.
    """
    path = manifest.weights_path
    if path.suffix not in (".gguf", ".xml"):
        raise BadManifest(f"{manifest.file}: it was built for {manifest.builder}; for a CPU run {manifest.command}")
    if path.suffix == ".xml":
        yield str(path.parent)
        return
    try:
        gguf.check_size(path)
    except (gguf.BadGguf, OSError) as error:
        raise BadManifest(f"{path.parent}: {error}; build it again: {manifest.command[:-1]} --force`") from None
    if _may_be_written(path):
        yield str(path)
    else:
        with _writable_copy(path) as copy:
            yield copy


def _may_be_written(path: Path) -> bool:
    return os.access(path, os.W_OK)


@contextmanager
def _writable_copy(path: Path) -> Iterator[str]:
    """The library opens the file for writing, though it writes nothing. Gone once it is loaded."""
    with tempfile.TemporaryDirectory(prefix="llm-engine-") as folder:
        copy = Path(folder, path.name)
        try:
            shutil.copyfile(path, copy)
        except OSError as error:
            size = path.stat().st_size >> 20
            raise BadManifest(
                f"{path} may only be read, and OpenVINO opens it for writing: a copy for loading needs {size} MiB in "
                f"{Path(folder).parent} ({error.strerror}); set TMPDIR to a folder with room, or make the file writable"
            ) from None
        yield str(copy)
