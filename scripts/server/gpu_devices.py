"""The GPUs that a server here could use."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from engines import nvidia_smi
from scripts.host.preflight import Refused

_ADVICE = "start a container with --gpus all (NVIDIA Container Toolkit); without a GPU: scripts/serve cpu"


def visible(devices: Path = Path("/dev")) -> int:
    """How many GPUs there are, CUDA_VISIBLE_DEVICES heeded. Raises Refused if the driver doesn't answer."""
    found = _found(devices)
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return found
    ids = [name.strip() for name in chosen.split(",")]
    # As CUDA does: what stands behind the first one that is none is not looked at.
    first_bad = next((i for i, name in enumerate(ids) if not name or name.startswith("-")), len(ids))
    return min(found, first_bad)


def _found(devices: Path) -> int:
    try:
        return len(nvidia_smi.query("name"))
    except OSError:  # an image without the driver's utilities
        return len(list(devices.glob("nvidia[0-9]*")))
    except subprocess.TimeoutExpired:
        raise Refused("nvidia-smi does not answer: the driver or a GPU hangs") from None
    except nvidia_smi.Failed as failure:
        raise Refused(f"nvidia-smi fails: {failure}; {_ADVICE}") from None


def check(found: int, needed: int) -> None:
    """Refuses a machine with fewer than `needed` GPUs."""
    if not found:
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = f"CUDA_VISIBLE_DEVICES is {chosen!r}" if chosen is not None else "no nvidia-smi, no /dev/nvidia0"
        raise Refused(f"there is no GPU here ({why}): {_ADVICE}")
    if found < needed:
        raise Refused(
            f"{needed} GPUs are needed, but there are {found}: build for fewer (tp_size, pp_size), or provide more"
        )
