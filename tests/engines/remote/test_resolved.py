from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bls.paths import ROOT
from tests.engines.remote.test_vanished import ALONE, has_namespaces

WITH_FILES = [*ALONE, "--mount"]


@pytest.mark.slow
@pytest.mark.skipif(
    not has_namespaces(), reason="needs `unshare`, `mount`, `ip` and a kernel that lets users have namespaces"
)
def test_a_name_whose_addresses_change_in_dns_is_followed_and_one_that_can_not_be_looked_up_keeps_them():
    words = [*WITH_FILES, sys.executable, "-m", "tests.engines.remote.resolving"]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert len(told) == 10 and set(told.values()) == {True}, told
