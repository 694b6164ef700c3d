"""What nvidia-smi, the driver's own program, says of this machine's GPUs."""

from __future__ import annotations

import subprocess

_SECONDS = 60  # A driver that hangs answers never.


class Failed(subprocess.SubprocessError):
    """It ran and failed; the message is the first line that it said."""


def query(*fields: str) -> list[list[str]]:
    """A row for each GPU, a text for each field, such as memory.total (MiB). Fields: nvidia-smi --help-query-gpu.

    Raises OSError where it isn't installed, subprocess.TimeoutExpired where it doesn't answer, Failed.
    """
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    if ran.returncode:
        raise Failed((ran.stdout + ran.stderr).strip().partition("\n")[0] or "without any output")
    return [[value.strip() for value in line.split(",")] for line in ran.stdout.splitlines() if line.strip()]
