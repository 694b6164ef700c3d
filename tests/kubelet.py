"""A folder of a ConfigMap as kubelet writes it (Kubernetes' pkg/volume/util/atomic_writer.go).

Each version is a folder `..<time>` of its own; `..data` is a link to the newest, turned by a rename; each name that a
container sees is a link through `..data`. The older folder is removed at once.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Mapping
from pathlib import Path


class ConfigMapVolume:
    """`files` may have folders in their names, as a volume's `items` have."""

    def __init__(self, folder: Path, files: Mapping[str, str]) -> None:
        self.folder = folder
        self._numbers = itertools.count(1)
        folder.mkdir()
        self.update(files)

    def update(self, files: Mapping[str, str]) -> None:
        """Swaps the whole content."""
        data = self.folder / "..data"
        before = self.folder / os.readlink(data) if data.is_symlink() else None
        version = self.folder / f"..2026_12_01_{next(self._numbers):09}"
        for name, text in files.items():
            (version / name).parent.mkdir(parents=True, exist_ok=True)
            (version / name).write_text(text, encoding="utf-8")
        draft = self.folder / "..data_tmp"
        draft.symlink_to(version.name)
        draft.replace(data)
        for name in {Path(name).parts[0] for name in files}:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(Path("..data", name))
        for link in self.folder.iterdir():
            if not link.name.startswith("..") and not link.exists():
                link.unlink()
        if before is not None:
            shutil.rmtree(before)
