"""Writes what phone numbers there are, for bls.words.phones.

bls/words/phone_plans.py has the numbers behind each country's calling code, and bls/words/national_plans.py how those
with a 0 before the area code are grouped.

Like build_tables, it is run by hand, and servers need no library for it:

    pip install phonenumbers==9.0.43
    python -m scripts.build_phone_plans
"""

import re
import sys
from pathlib import Path
from typing import Any

from bls.paths import ROOT

TARGET = ROOT / "bls" / "words" / "phone_plans.py"
NATIONAL = ROOT / "bls" / "words" / "national_plans.py"
SOURCE = "From the metadata of libphonenumber, by way of phonenumbers 9.0.43; both are under the Apache License 2.0."
TRUNK = "0"
# Countries whose grouping alone tells a phone number; of all together, nearly any grouping is somebody's.
GROUPED = "AT AU BE CH DE FI FR GB IE IL NL NZ SE TR TW ZA".split()  # noqa: SIM905


def main() -> int:
    import phonenumbers

    plans: dict[str, str] = {}
    for code, regions in sorted(phonenumbers.COUNTRY_CODE_TO_REGION_CODE.items()):
        patterns = []
        for region in regions:
            known = phonenumbers.PhoneMetadata.metadata_for_nongeo_region if region == "001" else None
            metadata = known(code) if known else phonenumbers.PhoneMetadata.metadata_for_region(region)
            patterns.append("".join(metadata.general_desc.national_number_pattern.split()))
        # A territory's numbers are its country's too where that has a wider pattern; each one once.
        plans[str(code)] = "|".join(dict.fromkeys(patterns))
    lines = [f"    {code!r}: {raw(pattern)},\n" for code, pattern in plans.items()]
    write(TARGET, "Calling code -> the national numbers behind it", ["PLANS = {\n", *lines, "}\n"])
    with_trunk = sorted(
        str(code)
        for code, (main, *_) in phonenumbers.COUNTRY_CODE_TO_REGION_CODE.items()
        if main != "001" and phonenumbers.PhoneMetadata.metadata_for_region(main).national_prefix == TRUNK
    )
    write(
        NATIONAL,
        "National numbers that a 0 stands before, and how they are grouped",
        [
            "# Calling codes of the countries that dial a 0 first.\n",
            f"WITH_TRUNK = {' '.join(with_trunk)!r}.split()  # noqa: SIM905\n\n",
            "# By country: its calling code, and by beginnings of a number the sizes of its groups, from and to.\n",
            "GROUPED: dict[str, tuple[str, list[tuple[str, tuple[tuple[int, int], ...]]]]] = {\n",
            *(grouped(phonenumbers.PhoneMetadata.metadata_for_region(region)) for region in GROUPED),
            "}\n",
        ],
    )
    return 0


def grouped(metadata: Any) -> str:
    lines = [f"    {metadata.id!r}: (\n        '{metadata.country_code}',\n        [\n"]
    for form in metadata.number_format:
        if TRUNK in (form.national_prefix_formatting_rule or ""):
            sizes = re.findall(r"\(\\d(?:\{(\d+)(?:,(\d+))?\})?\)", form.pattern)
            groups = tuple((int(low or 1), int(high or low or 1)) for low, high in sizes)
            beginning = "".join("".join(form.leading_digits_pattern[-1:]).split())
            lines.append(f"            ({raw(beginning)}, {groups}),\n")
    return "".join([*lines, "        ],\n    ),\n"])


def raw(pattern: str) -> str:
    return f"r{pattern!r}".replace("\\\\", "\\")


def write(path: Path, what: str, lines: list[str]) -> None:
    head = f'"""{what}. Made by scripts/build_phone_plans.py; do not edit.\n\n{SOURCE}\n"""\n\n'
    path.write_text("".join([head, "# ruff: noqa: E501\n# fmt: off\n", *lines]), encoding="utf-8")
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    sys.exit(main())
