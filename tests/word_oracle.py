"""What the filter must do, by brute force over a whole text: no trie, no state, written from the rules alone."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from bls.words import affixes, borders
from bls.words.candidates import BORDER, NUMBER, TAIL
from bls.words.cjk import is_cjk
from bls.words.normalise import (
    HIRAGANA_VOICING,
    INVISIBLE,
    LETTER,
    MARK,
    SEPARATOR,
    SOFT,
    VOICED,
    VOICING,
    Folding,
    normaliser,
)
from bls.words.trie import CLASS_BITS, EXTENDS, KATAKANA


class Token(NamedTuple):
    kind: str
    symbol: str
    raw: int  # position of the raw character it came from


@dataclass(frozen=True)
class Rules:
    max_gap: int
    separators: bool = True
    repeats: bool = True
    digits: bool = True
    folding: Folding = field(default_factory=Folding)


def tokens_of(text: str, rules: Rules) -> list[Token]:
    tokens: list[Token] = []
    for raw, character in enumerate(text):
        kind, symbols = normaliser(rules.folding).of(character)
        if kind == VOICED:
            kind = LETTER
            before = following_symbol([*tokens, Token(LETTER, "", raw)], len(tokens), rules, -1)
            if before is None or class_of(tokens[before].symbol) != KATAKANA:
                symbols = HIRAGANA_VOICING[VOICING.index(symbols)]
        is_mark = normaliser(rules.folding).is_mark
        tokens += [Token(MARK if symbol and is_mark(symbol) else kind, symbol, raw) for symbol in symbols or [""]]
    return tokens


def class_of(symbol: str) -> int:
    return borders.joins_of(symbol) & CLASS_BITS


def matches(
    text: str, word: str, rules: Rules, *, left: bool = False, needs: int = 0, is_allowed: bool = False
) -> set[tuple[int, int]]:
    """Raw spans (end exclusive) of every way in which a normalised word is in the text."""
    tokens = tokens_of(text, rules)
    spans = set()
    for form in [word, *(affix + word for affix in affixes.before(word) if left)]:
        for first, token in enumerate(tokens):
            if token.kind == MARK or token.symbol != form[0] or (left and touches(tokens, first, -1, rules)):
                continue
            for last, seen in ends(tokens, form, 1, first, first, False, rules):
                if is_end(tokens, last, needs, rules):
                    seen = max([seen, *marks_of(tokens, last, rules)]) if needs or is_allowed else seen
                    spans.add((token.raw, tokens[seen].raw + 1))
    return spans


def ends(
    tokens: list[Token], word: str, done: int, at: int, seen: int, stayed: bool, rules: Rules
) -> Iterator[tuple[int, int]]:
    """The letters at which word[done:] can end, and the last token of each.

    word[done - 1] is token `seen`: the letter `at` or one of its marks.
    """
    if not stayed or 3 <= run_length(tokens, at, rules) <= rules.max_gap:
        if done == len(word):
            yield at, seen
        elif normaliser(rules.folding).is_mark(word[done]):
            for mark in marks_of(tokens, at, rules):
                if mark > seen and tokens[mark].symbol == word[done]:
                    yield from ends(tokens, word, done + 1, at, mark, False, rules)
        else:
            for following, next_done in steps(tokens, word, done, at, rules):
                # The word's own letters come first in a run, then the repeats: its length is judged at its end.
                if (
                    stayed
                    and following == following_symbol(tokens, at, rules)
                    and (tokens[following].symbol == tokens[at].symbol)
                ):
                    continue
                yield from ends(tokens, word, next_done, following, following, False, rules)
    following = following_symbol(tokens, at, rules)
    if rules.repeats and following is not None and tokens[following].symbol == tokens[at].symbol:
        yield from ends(tokens, word, done, following, following, True, rules)


def marks_of(tokens: list[Token], at: int, rules: Rules) -> list[int]:
    """The marks of a letter."""
    found = []
    for index in range(at + 1, len(tokens)):
        if tokens[index].kind not in (MARK, INVISIBLE) or tokens[index].raw - tokens[at].raw > rules.max_gap:
            break
        if tokens[index].kind == MARK:
            found.append(index)
    return found


def is_end(tokens: list[Token], at: int, needs: int, rules: Rules) -> bool:
    """Whether a word may end with this letter."""
    if not needs:
        return True
    if needs & NUMBER and has_number(tokens, at, rules):
        return True
    tails = ["", *(affixes.after(tokens[at].symbol) if needs & TAIL else ())]
    return any(ends_behind(tokens, at, tail, needs, rules) for tail in tails)


def has_number(tokens: list[Token], at: int, rules: Rules) -> bool:
    """Whether three digits follow."""
    for _ in range(3):
        following = following_symbol(tokens, at, rules)
        if following is None or tokens[following].symbol not in set("0123456789"):
            return False
        at = following
    return True


def ends_behind(tokens: list[Token], at: int, tail: str, needs: int, rules: Rules) -> bool:
    for symbol in tail:
        following = following_symbol(tokens, at, rules)
        if following is None or tokens[following].symbol != symbol:
            return False
        at = following
    following = following_symbol(tokens, at, rules)
    if following is None:
        return True
    joins = borders.joins_of(tokens[following].symbol)
    return not joins & EXTENDS and not (needs & BORDER and touches(tokens, at, 1, rules))


def steps(tokens: list[Token], word: str, done: int, at: int, rules: Rules) -> Iterator[tuple[int, int]]:
    """Where the next symbol of the word may stand, and how much of the word is done with it."""
    is_space = word[done] == " "
    wanted = word[done + 1] if is_space else word[done]
    for following in range(at + 1, len(tokens)):
        if tokens[following].raw - tokens[at].raw - 1 > rules.max_gap:
            return
        if tokens[following].kind != MARK and tokens[following].symbol == wanted:
            gap = [token for token in tokens[at + 1 : following] if token.kind not in (INVISIBLE, MARK)]
            if is_space:
                allowed = bool(gap) and gap[0].kind == SEPARATOR
            else:
                allowed = not gap or (rules.separators and (is_cjk(word[done - 1]) or is_cjk(wanted)))
            if allowed:
                yield following, done + 2 if is_space else done + 1
        if tokens[following].kind == LETTER:
            if rules.digits and not is_space and is_cjk(word[done - 1]) and is_cjk(wanted):
                yield from bridged(tokens, wanted, done, at, following, rules)
            return


def bridged(
    tokens: list[Token], wanted: str, done: int, at: int, digit: int, rules: Rules
) -> Iterator[tuple[int, int]]:
    """The letter behind one digit that directly follows the last letter."""
    if tokens[digit].symbol not in set("0123456789") or following_symbol(tokens, at, rules) != digit:
        return
    following = following_symbol(tokens, digit, rules)
    is_near = following is not None and tokens[following].raw - tokens[at].raw - 1 <= rules.max_gap
    if following is not None and is_near and tokens[following] == (LETTER, wanted, tokens[following].raw):
        yield following, done + 1


def following_symbol(tokens: list[Token], at: int, rules: Rules, direction: int = 1) -> int | None:
    """The next token with a symbol, if nothing but a few invisible characters stands between."""
    hidden = 0
    index = at + direction
    while 0 <= index < len(tokens):
        if tokens[index].kind not in (INVISIBLE, MARK):
            return index if tokens[index].kind in (LETTER, SOFT) else None
        hidden += tokens[index].raw != tokens[index - 1].raw if index else 1
        if hidden > rules.max_gap:
            return None
        index += direction
    return None


def run_length(tokens: list[Token], at: int, rules: Rules) -> int:
    """How many equal symbols end with this one."""
    length = 1
    while (before := following_symbol(tokens, at, rules, -1)) is not None:
        if tokens[before].symbol != tokens[at].symbol:
            break
        length, at = length + 1, before
    return length


def touches(tokens: list[Token], at: int, direction: int, rules: Rules) -> bool:
    neighbour = following_symbol(tokens, at, rules, direction)
    own = class_of(tokens[at].symbol)
    return neighbour is not None and own > 0 and class_of(tokens[neighbour].symbol) == own


def counting(denied: set[tuple[int, int]], allowed: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Deny matches that no allow match contains."""
    return {(start, end) for start, end in denied if not any(first <= start and end <= last for first, last in allowed)}


def rendered(text: str, masked: set[tuple[int, int]], replaced: dict[tuple[int, int], str], mask: str = "*") -> str:
    """The text with every masked character masked, and each group of overlapping replaced spans as one text."""
    groups: list[tuple[int, int, str]] = []
    for start, end in sorted(replaced, key=lambda span: (span[0], -span[1])):
        if groups and start < groups[-1][1]:
            groups[-1] = groups[-1][0], max(end, groups[-1][1]), groups[-1][2]
        else:
            groups.append((start, end, replaced[start, end]))
    at_start = {start: (end, instead) for start, end, instead in groups}
    hidden = {position for start, end in masked for position in range(start, end)}
    out, position = "", 0
    while position < len(text):
        if position in at_start:
            position, instead = at_start[position]
            out += instead
        else:
            out += mask if position in hidden else text[position]
            position += 1
    return out
