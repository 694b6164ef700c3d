"""The commands of scripts/, from whichever folder a person stands in."""

import subprocess

import pytest

from bls.paths import ROOT


@pytest.mark.parametrize("command", ["words check", "policy check", "safety hello"])
def test_a_command_runs_the_code_beside_it_and_not_that_of_the_folder_one_stands_in(tmp_path, command):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "__init__.py").write_text("raise SystemExit('the wrong folder')")
    name, argument = command.split()
    ran = subprocess.run([ROOT / "scripts" / name, argument], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
