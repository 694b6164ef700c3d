"""Writes the Python client as a wheel of its own, for programs on machines without this repository or a server.

    .venv/bin/python -m scripts.client_wheel dist
    pip install dist/llm_router_client-*.whl

    from llm_router_client import Request, TritonAsyncClient

It holds scripts/client and what that takes from bls, under one name. The same sources give the same bytes.
"""

from __future__ import annotations

import argparse
import ast
import base64
import hashlib
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bls.paths import ROOT
from engines.specs import tomllib

PACKAGE = "llm_router_client"
SHARED = f"{PACKAGE}.shared"
REQUIRES = ("tritonclient[grpc]>=2.50", "grpcio>=1.60", "numpy>=1.22")
_CLIENT, _BLS = re.compile(r"\bscripts\.client\b"), re.compile(r"\b(from|import) bls\b")
_TIME = (2020, 1, 1, 0, 0, 0)  # zip files begin in 1980; any fixed time does


def sources(root: Path = ROOT) -> dict[str, str]:
    """The text of each module by its path in the wheel."""
    client = (root / "scripts" / "client").glob("*.py")
    found = {f"{PACKAGE}/{path.name}": path.read_text(encoding="utf-8") for path in client}
    waiting = [name for text in found.values() for name in _of_bls(text)]
    while waiting:
        name = waiting.pop()
        place = f"{PACKAGE}/shared/{name}.py"
        if place not in found:
            found[place] = (root / "bls" / f"{name}.py").read_text(encoding="utf-8")
            waiting += _of_bls(found[place])
    found[f"{PACKAGE}/shared/__init__.py"] = '"""What the client and the router share."""\n'
    return {place: renamed(text) for place, text in sorted(found.items())}


def renamed(text: str) -> str:
    """A module's text with its imports as the wheel names them."""
    return _BLS.sub(rf"\1 {SHARED}", _CLIENT.sub(PACKAGE, text))


def _of_bls(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module == "bls":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bls."):
            yield str(node.module).removeprefix("bls.")


def write(folder: Path, root: Path = ROOT) -> Path:
    """The wheel, in `folder`."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name = f"{PACKAGE}-{project['version']}"
    info = f"{name}.dist-info"
    files = {place: text.encode() for place, text in sources(root).items()}
    files[f"{info}/METADATA"] = "\n".join(
        [
            "Metadata-Version: 2.1",
            "Name: llm-router-client",
            f"Version: {project['version']}",
            "Summary: An asyncio client of the LLM router on NVIDIA Triton: many requests at once over one connection.",
            f"License: {project['license']}",
            "Requires-Python: >=3.10",
            *(f"Requires-Dist: {each}" for each in REQUIRES),
            "",
        ]
    ).encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: llm-router\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/licenses/LICENSE"] = (root / "LICENSE").read_bytes()
    record = [f"{place},sha256={_digest(data)},{len(data)}" for place, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, data in files.items():
            archive.writestr(zipfile.ZipInfo(place, _TIME), data, zipfile.ZIP_DEFLATED)
    return wheel


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.client_wheel", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path("dist"), help="where the wheel goes (dist/)")
    print(write(parser.parse_args(arguments).folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
