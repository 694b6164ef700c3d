"""GPUs as nvidia-smi, clouds and Kubernetes call them, by the names of known.GPUS; and slices of them (MIG)."""

from __future__ import annotations

import re

# What stands around the name of a card without saying which it is.
_AROUND = re.compile(
    r"\b(nvidia(\.com)?|tesla|geforce|quadro|graphics|mega|gpu|generation|sxm\d?|pcie|hbm\d?e?|gddr\d|mig)\b"
)
_SLICE = re.compile(r"[-\s/]?(?:mig[-\s])?(\d)g\.(\d{1,3})gb\b")
_MEMORY = re.compile(r"(?<![a-z\d])(\d+)g(?:i?b)?\b")
# What a name leaves open, or says in another way. GH200 comes with 96 GB and more: the least is meant.
_ALIASES = {
    "rtx-a6000": "RTX-A6000",
    "a6000": "RTX-A6000",
    "rtx-6000-ada": "RTX-6000-Ada",
    "6000-ada": "RTX-6000-Ada",
    "rtx-pro-6000-blackwell-workstation-edition": "RTX-PRO-6000",
    "rtx-pro-6000-blackwell-server-edition": "RTX-PRO-6000",
    "h100": "H100-80GB",
    "gh200-480gb": "GH200",
    "gh200-96gb": "GH200",
    "h100-94gb": "H100-NVL",
    "h200-nvl": "H200",
}
# MIG's memory is that of whole slices, less what each needs for itself: 9.5 GiB of 10 GB on an A100 of 80 GB.
_SLICE_SHARE = 0.95


def plain(name: str) -> str:
    """A name without what stands around it: "NVIDIA A100-SXM4-80GB" and "nvidia-a100-80gb" are both a100-80gb."""
    lower = name.lower().replace("_", "-").replace("/", "-")
    words = re.split(r"[-\s]+", _AROUND.sub(" ", lower))
    found = "-".join(word for word in words if word)
    found = _MEMORY.sub(lambda memory: f"{memory[1]}gb", found)
    found = re.sub(r"^(?:rtx-?)?(\d{4})-?(?=[a-z]|\Z)", r"rtx-\1-", found).rstrip("-")  # rtx4070super, 4090
    return _ALIASES.get(found, found)


def slice_of(name: str) -> tuple[str, float] | None:
    """The card that a MIG slice is of ("" if the name doesn't say), and the slice's GiB; None for a whole card."""
    found = _SLICE.search(name.lower())
    if found is None:
        return None
    return name[: found.start()].strip(" -"), int(found[2]) * _SLICE_SHARE
