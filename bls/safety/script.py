"""Which script a text is written in: a guess that costs some 30 us, enough to choose an engine by."""

from __future__ import annotations

import numpy as np

_LOOKED_AT = 4000  # characters
_LEAST_SHARE = 0.05

# Where the letters of each script begin; "" for all that is none of them, such as signs and digits.
RANGES = (
    (0x00, ""), (0x41, "latin"), (0x5B, ""), (0x61, "latin"), (0x7B, ""), (0xC0, "latin"), (0x250, ""), (0x370, "el"),
    (0x400, "ru"), (0x530, ""), (0x590, "he"), (0x600, "ar"), (0x780, ""), (0x900, "hi"), (0x980, ""), (0xE00, "th"),
    (0xE80, ""), (0x1100, "ko"), (0x1200, ""), (0x1E00, "latin"), (0x1F00, "el"), (0x2000, ""), (0x3041, "ja"),
    (0x3100, ""), (0x3400, "zh"), (0x4DC0, ""), (0x4E00, "zh"), (0xA000, ""), (0xAC00, "ko"), (0xD7B0, ""),
    (0xF900, "zh"), (0xFB00, ""), (0xFF21, "latin"), (0xFF3B, ""), (0xFF41, "latin"), (0xFF5B, ""), (0xFF66, "ja"),
    (0xFFA0, ""), (0x20000, "zh"), (0x323B0, ""),
)  # fmt: skip
_STARTS = np.array([start for start, _ in RANGES], np.uint32)
_KANA_OF_JAPANESE = 0.1  # Japanese is written in kana and Chinese characters; so much kana makes those Japanese too


def script_shares(text: str) -> dict[str, float]:
    """Each script's share of the letters: "zh", "ja", "ko", "ru" (Cyrillic), "ar", "latin" ...; none below 0.05."""
    text = text[:_LOOKED_AT]
    if text.isascii():
        return {"latin": 1.0} if any(map(str.isalpha, text)) else {}
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    counts: dict[str, int] = {}
    found = np.bincount(np.searchsorted(_STARTS, points, "right") - 1, minlength=len(RANGES)).tolist()
    for (_, script), count in zip(RANGES, found, strict=True):
        if script and count:
            counts[script] = counts.get(script, 0) + count
    # A Chinese character says about as much as two or three Latin letters.
    for script in ("zh", "ja", "ko"):
        if script in counts:
            counts[script] *= 2
    kana = counts.get("ja", 0)
    if kana and kana >= _KANA_OF_JAPANESE * counts.get("zh", 0):
        counts["ja"] = kana + counts.pop("zh", 0)
    total = sum(counts.values())
    return {name: round(count / total, 2) for name, count in counts.items() if count >= _LEAST_SHARE * total}


def is_chinese(text: str) -> bool:
    """Whether to answer in Chinese."""
    return not text.isascii() and script_shares(text).get("zh", 0) >= 0.3
