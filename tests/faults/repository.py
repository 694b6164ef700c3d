"""A copy of all that is served, whose policy lets a request name its tier: to load one engine and not another."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from bls.contract import ROUTER
from bls.paths import ROOT
from bls.routing.policy_file import SHIPPED
from bls.words.compiler import compile_folder
from tests.server.echo_repository import set_parameter


def copy(folder: Path, **lines: str) -> Path:
    """The repository in `folder`; `lines` are further values of the policy, by name."""
    repository = folder / "model_repository"
    shutil.copytree(ROOT / "model_repository", repository)
    shutil.copytree(ROOT / "engines" / "built", folder / "engines" / "built", copy_function=os.link)
    shutil.copytree(ROOT / "words", folder / "words")
    compile_folder(ROOT / "words", folder / "words" / "compiled.bin")
    text = SHIPPED.read_text(encoding="utf-8")
    for name, value in {"CLIENTS_MAY_CHOOSE": "True", **lines}.items():
        text, found = re.subn(rf"^({name}\b[^=\n]*=).*$", rf"\g<1> {value}", text, count=1, flags=re.MULTILINE)
        assert found, name
    (folder / "policy.py").write_text(text, encoding="utf-8")
    set_parameter(repository, ROUTER, "policy_file", "policy.py")
    return repository
