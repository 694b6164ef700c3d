"""Lists, streams cut into pieces, and what the oracle says of them: what tests of the word filter share."""

import itertools
import os
from pathlib import Path

from hypothesis import HealthCheck, settings

from bls.words import borders, frequent
from bls.words.candidates import BORDER
from bls.words.cjk import is_cjk
from bls.words.lists import Category, Word, WordLists
from bls.words.normalise import normaliser, spellings
from bls.words.stream_filter import WordFilter
from bls.words.table import WordTable
from tests import word_oracle
from tests.word_oracle import Rules

EXAMPLES = int(os.environ.get("FILTER_EXAMPLES", "120"))
thorough = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
MAX_GAP = 3


def lists_of(
    deny: dict[str, list[str]], allow: list[str], categories: dict[str, Category], max_gap: int = MAX_GAP
) -> WordLists:
    def words(texts: list[str]) -> list[Word]:
        return [Word(text.strip("*"), Path("w"), 1, text.startswith("*"), text.endswith("*")) for text in texts]

    return WordLists({name: words(texts) for name, texts in deny.items()}, words(allow), categories, max_gap=max_gap)


def pushed(table: WordTable, pieces: list[str]) -> tuple[list[str], WordFilter]:
    """What comes out after each piece, and at the end."""
    stream = WordFilter(table)
    outs = [stream.push(piece) for piece in pieces]
    return [*outs, stream.finish()], stream


def cut(text: str, cuts: list[int]) -> list[str]:
    bounds = sorted({0, len(text), *(at % (len(text) + 1) for at in cuts)})
    return [text[first:last] for first, last in itertools.pairwise(bounds)]


def oracle_matches(text, deny, allow, categories) -> dict[str, set[tuple[int, int]]]:
    found = {}
    for name, texts in deny.items():
        category = categories[name]
        rules = Rules(MAX_GAP, category.separators, category.repeats, category.digits, category.folding)
        folded = normaliser(category.folding)
        allowing = {form for word in allow for form in spellings(word, folded)}
        allowed = set().union(*(word_oracle.matches(text, form, rules, is_allowed=True) for form in allowing))
        for form in spared_forms(deny, allow, categories, category):
            allowed |= word_oracle.matches(text, form, rules, left=True, is_allowed=True)
        denied = set()
        forms = {form for listed in texts for form in spellings(listed, folded)}
        for word in forms | {doubled(form) for form in forms if category.doubled}:
            left = category.whole_words and borders.has_left_border(word)
            needs = borders.end_needs(word, whole_words=category.whole_words)
            denied |= word_oracle.matches(text, word, rules, left=left, needs=needs)
        found[name] = word_oracle.counting(denied, allowed)
    return found


def spared_forms(deny, allow, categories, like: Category) -> set[str]:
    """Frequent words that are found for an accent that no listed word has, by categories that match as `like` does."""
    folded = normaliser(like.folding)
    manner = (like.separators, like.repeats, like.digits, like.folding)
    known = {form for word in allow for form in spellings(word, folded)}
    whole = set()
    for name, texts in deny.items():
        each = categories[name]
        if (each.separators, each.repeats, each.digits, each.folding) == manner:
            forms = {form for listed in texts for form in spellings(listed, folded)}
            known |= forms
            whole |= {form for form in forms if each.whole_words and borders.has_left_border(form)}
    ended = {form for form in whole if borders.end_needs(form, whole_words=True) & BORDER}
    frequents = [word for form in ended for word in frequent.with_more_accents(form, folded)]
    return {form for word in frequents for form in spellings(word.text, folded)} - known


def doubled(word: str) -> str:
    """Each letter twice, where all are Chinese, Japanese or Korean."""
    return "".join(symbol * 2 for symbol in word) if len(word) > 1 and all(map(is_cjk, word)) else word


def oracle_text(text, deny, allow, categories) -> str:
    masked, replaced = set(), {}
    for name, spans in oracle_matches(text, deny, allow, categories).items():
        if categories[name].action == "mask":
            masked |= spans
        elif categories[name].action == "replace":
            for span in spans:
                replaced.setdefault(span, categories[name].text)
    return word_oracle.rendered(text, masked, replaced)
