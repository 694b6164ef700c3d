"""The containers of the chart's pods, as user 1000 on a root that can't be written: real servers, and no cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from bls.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("which", ["whole", "tiers"])
def test_pods_start_serve_and_end_as_the_chart_describes_them(which, tmp_path):
    if os.getuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "ip"))):
        pytest.skip("needs root, and Debian's packages util-linux and iproute2")
    for folder in (tmp_path, *tmp_path.parents):  # of a test's folder only its user may pass
        if folder.stat().st_uid == 0 and folder != folder.parent:
            folder.chmod(folder.stat().st_mode | 0o055)
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", sys.executable]
    command += ["-m", "tests.deployment.pod_run", which, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1180)
    assert done.returncode == 0, done.stderr[-6000:]
