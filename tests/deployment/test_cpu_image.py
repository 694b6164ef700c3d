"""The CPU image without Docker: the Dockerfile's steps in a clean Debian, then its command as Compose would run it.

User 1000 without capabilities to gain, a read-only root but for what Compose mounts, no network but its own loopback.
Takes minutes and 3 GB of disk, and needs root; Debian's Python 3.11 stands in for that of the python image.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deployment.test_compose import ROOT, entrypoint, stage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

NEEDED = "python3,python3-venv,libpython3.11,ca-certificates"
HOME = "opt/llm-router"
WRITABLE = [f"{HOME}/{folder}" for folder in ("engines/built", "logs", "words")]
AS_THE_SERVER = ["chroot", "--userspec=1000:1000", ".", "/usr/bin/env", "-i", "HOME=/tmp", "PATH=/usr/bin:/bin"]
RUN = """
set -e
cd "$1"
ip link set lo up
mount --bind . . && cd "$1"
mount -t proc proc proc
for path in {writable}; do mount --bind "$path" "$path"; done
mount -o remount,bind,ro .
mount -t tmpfs -o size=1g tmpfs dev/shm
mount -t tmpfs tmpfs tmp
cat >tmp/ask.py <<'END'
{ask}
END
{server} sh -c 'cd /{home} && exec setpriv --no-new-privs {entrypoint}' &
server=$!
in_app() {{ {server} sh -c "cd /{home} && $1"; }}
for _ in $(seq 180); do in_app '{health}' >/dev/null && break; sleep 1; done
in_app '{health}'
in_app '.venv/bin/python /tmp/ask.py'
if in_app 'touch bls/policy.py words.txt' 2>/dev/null; then echo "the root can be written"; exit 1; fi
in_app 'scripts/words compile'
kill -TERM "$server"
wait "$server"
"""
ASK = """
import json, urllib.request as http
body = json.dumps(dict(text_input="What is the capital of France?", max_tokens=8, apply_chat_template=True)).encode()
print(http.urlopen("http://127.0.0.1:8000/v2/models/llm_router/generate", body).read().decode())
print("ready", http.urlopen("http://127.0.0.1:8003/ready").status)
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    if os.getuid() != 0 or not shutil.which("debootstrap"):
        pytest.skip("needs root, and debootstrap (Debian's and Ubuntu's package of that name)")
    folder = tmp_path_factory.mktemp("image") / "root"
    run("debootstrap", "--variant=minbase", f"--include={NEEDED}", "bookworm", folder)
    copy_context(folder / HOME)
    for path in network_settings():
        copy = folder / path.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    (step,) = re.findall(r"^RUN (.*?[^\\])$", stage("cpu"), re.MULTILINE | re.DOTALL)
    step = re.sub(r"--mount=\S+", "", step.replace("\\\n", " "))
    run(
        "unshare",
        "--mount",
        "sh",
        "-ec",
        f"mount -t proc proc {folder}/proc; chroot {folder} sh -ec 'cd /{HOME}; {step}'",
    )
    yield folder
    shutil.rmtree(folder)


def network_settings():
    """The files by which this machine reaches a package index: pip's configuration, and certificates that it names."""
    files = {Path("/etc/resolv.conf"), Path("/etc/pip.conf"), Path.home() / ".config" / "pip" / "pip.conf"}
    said = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    named = [*re.findall(r"='([^']*)'", said.stdout), *os.environ.values()]
    files |= {Path(name) for name in named if re.fullmatch(r"/\S*\.(crt|pem|txt)", name)}
    return [path for path in files if path.is_file()]


def copy_context(target):
    """What .dockerignore lets through, as a clone has it."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    wanted = [line[1:] for line in lines if line.startswith("!")]
    left_out = [line for line in lines if line[:1] not in ("!", "#", "*")]
    listed = subprocess.run(["git", "ls-files", *wanted], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if not any(name.startswith(path) for path in left_out):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def test_the_image_serves_as_compose_runs_it(root):
    (health,) = re.findall(r"^HEALTHCHECK .*CMD (.*)$", stage("cpu"), re.MULTILINE)
    script = RUN.format(
        home=HOME,
        writable=" ".join(WRITABLE),
        server=" ".join(AS_THE_SERVER),
        entrypoint=" ".join(entrypoint("cpu")),
        health=re.sub(r'[\[\]",]', " ", health).strip(),
        ask=ASK,
    )
    said = run("unshare", "--mount", "--mount-proc", "--pid", "--net", "--fork", "sh", "-c", script, "sh", root)
    assert '"finish_reason":' in said and "ready 200" in said
