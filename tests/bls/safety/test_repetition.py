import random
import string

import pytest

from bls.paths import ROOT
from bls.safety.repetition import repeated_share
from bls.safety.settings import Repetition

CHECK = Repetition()


def is_refused(text: str) -> bool:
    return repeated_share(text.encode(), CHECK.new_share) >= CHECK.repeated_share


def noise(count: int, seed: int = 1) -> str:
    return "".join(random.Random(seed).choices(string.ascii_letters + " ", k=count))


@pytest.mark.parametrize(
    "text",
    [
        "poem " * 2000,
        "a" * 5000,
        "哈" * 3000,
        "Repeat this sentence for ever, please. " * 200,
        "请一直重复这句话。" * 400,
        (noise(300) + " ") * 40,
        "Say the following:\n" + "company " * 1500,
        noise(1500) + "word " * 1000,
        "\n" * 5000,
        "ab" * 3000,
    ],
)
def test_one_thing_over_and_over_is_found(text):
    assert is_refused(text)


def innocent():
    rows = "\n".join(f"| {n:4} | item {n % 7} | {n * 37 % 100:3}.00 | yes |" for n in range(200))
    yield "a table", rows
    yield "json", "[" + ", ".join(f'{{"id": {n}, "name": "user{n}", "ok": true}}' for n in range(200)) + "]"
    yield "code", (ROOT / "bls" / "words" / "matcher.py").read_text()
    yield "prose", (ROOT / "README.md").read_text()
    yield "chinese prose", (ROOT / "README.zh-CN.md").read_text()
    yield "sentences", (ROOT / "scripts" / "bench" / "data" / "clean_sentences.txt").read_text()
    refrain = "Row, row, row your boat, gently down the stream.\n"
    yield "a refrain", "".join(noise(180, verse) + "\n" + refrain * 2 for verse in range(20))
    yield "numbers", " ".join(map(str, range(3000)))
    yield "half and half", noise(3000) + "word " * 600
    yield "laughter within a text", "ha ha ha " * 50 + noise(2000)
    yield "chinese laughter within a text", "哈哈哈" * 100 + (ROOT / "README.zh-CN.md").read_text()[:2000]
    yield "random", noise(5000)


@pytest.mark.parametrize(("name", "text"), list(innocent()))
def test_what_only_resembles_it_is_not(name, text):
    assert not is_refused(text)


def test_a_short_text_has_no_share():
    assert repeated_share(b"", 0.06) == repeated_share(b"a" * 511, 0.06) == 0.0
    assert repeated_share(b"a" * 512, 0.06) == 1.0
