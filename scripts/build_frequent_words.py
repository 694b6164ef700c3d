"""Writes bls/words/data/frequent.txt: frequent words that folding may take for others.

Those with accents ("año", "các"), and those that look as if they were Latin ("РОТ", a mouth). Like build_tables, it is
run by hand, and servers need neither it nor what it reads:

    pip install wordfreq==3.1.1 regex
    python -m scripts.build_frequent_words
"""

import sys
from collections import defaultdict

from bls.words.normalise import DATA, Folding, normaliser, spellings

# Languages written with accents, or in scripts whose letters look Latin.
LANGUAGES = """
vi es fr pt de tr cs pl sv da nb fi hu ro ca sh sk sl lt lv is it nl mk bg uk ru el fil en id
""".split()  # noqa: SIM905
CYRILLIC_LOOKS = set("abcehikmopstxyj")  # small letters whose capitals, or they themselves, there are in Cyrillic too
LEAST_ZIPF = 4.3  # once in 50,000 words
WORDS_LOOKED_AT = 6000
LETTERS = range(2, 8)  # longer words are hardly ever each other


def main() -> int:
    import wordfreq

    found: defaultdict[str, set[str]] = defaultdict(set)
    for language in LANGUAGES:
        for word in wordfreq.top_n_list(language, WORDS_LOOKED_AT):
            if wordfreq.zipf_frequency(word, language) < LEAST_ZIPF:
                break
            if word.isalpha() and may_be_mistaken(word):
                found[word].add(language)
    lines = [
        "# Made by scripts/build_frequent_words.py; do not edit. Each line: a frequent word and its languages.\n",
        "# Derived from wordfreq 3.1.1 by Robyn Speer, whose data is under the licence Creative Commons Attribution-\n",
        "# ShareAlike 4.0, https://creativecommons.org/licenses/by-sa/4.0/; this file is too.\n",
    ]
    lines += [f"{word} {','.join(sorted(found[word]))}\n" for word in sorted(found)]
    (DATA / "frequent.txt").write_text("".join(lines), encoding="utf-8")
    print(f"{len(found)} words")
    return 0


def may_be_mistaken(word: str) -> bool:
    """Whether a listed word of other letters may be found in it."""
    folded = normaliser(Folding())
    if len(normaliser(Folding(list_accents=False)).word(word)) not in LETTERS:
        return False
    if any(map(folded.is_mark, folded.word(word))):
        return True
    if word.isascii():
        return set(word) <= CYRILLIC_LOOKS
    return any(form.isascii() for form in spellings(word, folded))


if __name__ == "__main__":
    sys.exit(main())
