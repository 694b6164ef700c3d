"""Writes bls/words/phone_plans.py: what numbers there are behind each country's calling code.

Like build_tables, it is run by hand, and servers need no library for it:

    pip install phonenumbers==9.0.43
    python -m scripts.build_phone_plans
"""

import sys

from bls.paths import ROOT

TARGET = ROOT / "bls" / "words" / "phone_plans.py"


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
    lines = [
        '"""Calling code -> the national numbers behind it. Made by scripts/build_phone_plans.py; do not edit.\n\n',
        "From the metadata of libphonenumber, by way of phonenumbers 9.0.43; both are under the Apache License 2.0.\n",
        '"""\n\n# ruff: noqa: E501\n# fmt: off\nPLANS = {\n',
    ]
    lines += [f"    {code!r}: r{pattern!r},\n".replace("\\\\", "\\") for code, pattern in plans.items()]
    TARGET.write_text("".join([*lines, "}\n"]), encoding="utf-8")
    print(f"{len(plans)} calling codes, {TARGET.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
