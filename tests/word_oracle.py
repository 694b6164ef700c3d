"""What the filter must do, by brute force over a whole text: no trie, no state, written from the rules alone."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from bls.words.normalise import INVISIBLE, LETTER, SEPARATOR, SOFT, Folding, is_cjk, normaliser

ASCII_WORD = set("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class Token(NamedTuple):
    kind: str
    symbol: str
    raw: int  # position of the raw character it came from


@dataclass(frozen=True)
class Rules:
    max_gap: int
    separators: bool = True
    repeats: bool = True
    folding: Folding = field(default_factory=Folding)


def tokens_of(text: str, rules: Rules) -> list[Token]:
    tokens = []
    for raw, character in enumerate(text):
        kind, symbols = normaliser(rules.folding).of(character)
        tokens += [Token(kind, symbol, raw) for symbol in symbols or [""]]
    return tokens


def matches(text: str, word: str, rules: Rules, *, left: bool = False, right: bool = False) -> set[tuple[int, int]]:
    """Raw spans (end exclusive) of every way in which a normalised word is in the text."""
    tokens = tokens_of(text, rules)
    spans = set()
    for first, token in enumerate(tokens):
        if token.symbol != word[0] or (left and touches(tokens, first, -1, rules)):
            continue
        for last in ends(tokens, word, 1, first, False, rules):
            if not (right and touches(tokens, last, 1, rules)):
                spans.add((token.raw, tokens[last].raw + 1))
    return spans


def ends(tokens: list[Token], word: str, done: int, at: int, stayed: bool, rules: Rules) -> Iterator[int]:
    """The tokens at which word[done:] can end, when word[done - 1] is token `at`."""
    if not stayed or 3 <= run_length(tokens, at, rules) <= rules.max_gap:
        if done == len(word):
            yield at
        else:
            for following, next_done in steps(tokens, word, done, at, rules):
                # The word's own letters come first in a run, then the repeats: its length is judged at its end.
                if (
                    stayed
                    and following == following_symbol(tokens, at, rules)
                    and (tokens[following].symbol == tokens[at].symbol)
                ):
                    continue
                yield from ends(tokens, word, next_done, following, False, rules)
    following = following_symbol(tokens, at, rules)
    if rules.repeats and following is not None and tokens[following].symbol == tokens[at].symbol:
        yield from ends(tokens, word, done, following, True, rules)


def steps(tokens: list[Token], word: str, done: int, at: int, rules: Rules) -> Iterator[tuple[int, int]]:
    """Where the next symbol of the word may stand, and how much of the word is done with it."""
    is_space = word[done] == " "
    wanted = word[done + 1] if is_space else word[done]
    for following in range(at + 1, len(tokens)):
        if tokens[following].raw - tokens[at].raw - 1 > rules.max_gap:
            return
        if tokens[following].symbol == wanted:
            gap = [token for token in tokens[at + 1 : following] if token.kind != INVISIBLE]
            if is_space:
                allowed = bool(gap) and gap[0].kind == SEPARATOR
            else:
                allowed = not gap or (rules.separators and (is_cjk(word[done - 1]) or is_cjk(wanted)))
            if allowed:
                yield following, done + 2 if is_space else done + 1
        if tokens[following].kind == LETTER:
            return


def following_symbol(tokens: list[Token], at: int, rules: Rules, direction: int = 1) -> int | None:
    """The next token with a symbol, if nothing but a few invisible characters stands between."""
    hidden = 0
    index = at + direction
    while 0 <= index < len(tokens):
        if tokens[index].kind != INVISIBLE:
            return index if tokens[index].kind in (LETTER, SOFT) else None
        hidden += 1
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
    return neighbour is not None and tokens[neighbour].symbol in ASCII_WORD


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
