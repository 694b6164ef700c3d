"""What is written together with a word and is none of it: particles, prepositions, articles and endings, by script.

A listed word is found with any of these on it. Other scripts have none here: their endings are too many to list, so
such a word is opened with a * instead. The table with the reasons is in docs/words.md.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

# Korean particles and the forms of "to be": each alone, and behind the plural.
_PARTICLES = tuple(
    """
은 는 이 가 을 를 의 에 에게 에게서 에서 께 께서 한테 한테서 로 으로 로서
으로서 로써 으로써 와 과 랑 이랑 하고 도 만 부터 까지 마저 조차 밖에 처럼 같이 같은
보다 마다 뿐 대로 라도 이라도 나 이나 라고 이라고 라는 이라는 란 이란 야 아 여 이여
요 이요 예요 이에요 이다 다 이냐 냐 입니다 이었다 였다 인데 인 이고 이며 이지 지 이네
네 님 씨 에는 에도 에서는 에서도 으로는 로는 까지도 만은 만이 만을 들아 이야 이니까 니까
""".split()  # noqa: SIM905
)
_SHORT_PARTICLES = ("\u11ab", "\u11af", "\u11ab\u1103\u1166", "\u11b8\u1102\u1175\u1103\u1161")  # n, l, nde, mnida
_PLURAL = "들"
# Arabic: "and", "so", "in", "like", "for" and the article, alone or together; pronouns and plural endings.
_ARABIC_BEFORE = tuple("ال و ف ب ك ل لل وال فال بال كال ولل وب ول يا".split())  # noqa: SIM905
_ARABIC_AFTER = tuple("ه ها هم هن هما ك كم كن نا ني ي ين ون ان ات ة تي ته تها تهم تك".split())  # noqa: SIM905
_NOT_ARABIC = set("\u067e\u0686\u0698\u06af\u0679\u0688\u0691\u06d2\u06c1")  # letters of Persian and Urdu
# Hebrew: "the", "and", "in", "like", "to", "from", "that"; plural and possessive endings.
_HEBREW_BEFORE = tuple("ה ו ב כ ל מ ש וה וב וכ ול ומ וש שה שב של מה כש".split())  # noqa: SIM905
_HEBREW_AFTER = tuple("ים ות י ה ת ו ך נו כם הם".split())  # noqa: SIM905

_ARABIC, _HEBREW, _HANGUL = ("\u0600", "\u06ff"), ("\u0590", "\u05ff"), ("\u1100", "\u11ff")


def before(symbols: str) -> Sequence[str]:
    """What may stand before a word of these symbols, joined to it."""
    if _is_of(symbols[0], _ARABIC):
        return () if set(symbols) & _NOT_ARABIC else _ARABIC_BEFORE
    return _HEBREW_BEFORE if _is_of(symbols[0], _HEBREW) else ()


def after(symbols: str) -> Sequence[str]:
    """What may stand behind it, as symbols."""
    if _is_of(symbols[-1], _ARABIC):
        return _ARABIC_AFTER
    if _is_of(symbols[-1], _HEBREW):
        return _HEBREW_AFTER
    if not _is_of(symbols[-1], _HANGUL):
        return []
    tails = [*_PARTICLES, *(_PLURAL + particle for particle in ("", *_PARTICLES))]
    return [*_SHORT_PARTICLES, *(unicodedata.normalize("NFD", tail) for tail in tails)]


def _is_of(symbol: str, script: tuple[str, str]) -> bool:
    return script[0] <= symbol <= script[1]
