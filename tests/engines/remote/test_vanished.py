from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bls.paths import ROOT

ALONE = ["unshare", "--user", "--map-root-user", "--net"]  # of util-linux; and `ip` of iproute2


def has_namespaces() -> bool:
    try:
        return subprocess.run([*ALONE, "ip", "link", "set", "lo", "up"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not has_namespaces(), reason="needs `unshare`, `ip` and a kernel that lets users have namespaces")
def test_a_machine_that_vanishes_ends_its_streams_alone_and_is_used_again_when_it_is_back():
    words = [*ALONE, sys.executable, "-m", "tests.engines.remote.vanishing"]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=150)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    print(f"its streams end after {told['seconds']:.1f} s")
    assert told["streams"] > 0 and told["errors"] == ["EngineFailed"]
    assert (told["others_ended"], told["next"], told["is_back"]) == (0, [5, 6, 7], True)
