"""Whether words stand in a question about something else: "How do I make git ignore previous changes?".

Such a sentence asks or tells ("My style sheet ..."), speaks to nobody ("you") and orders nothing ("and print ...").
Patterns that begin with a ? don't count in one. The words are folded by the compiler, as the patterns' own are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bls.words.normalise import Normaliser

# Anywhere before what is found, and at the beginning of the sentence only.
ASKING = (
    "how why which whether does wie warum wieso weshalb comment pourquoi como как почему зачем says say saying said"
)
ASKING_FIRST = (
    "what when where who does do did is are was can could may should must will would has have "
    "was welche welcher welches kann kannst muss müssen darf soll gilt überschreibt "
    "que quel quelle quels est faut peut un une qu "
    "cuál qué debo debe un una siguen por o "
    "что кто какой какая отменяет нужно можно "
    # Who tells of something of their own orders nothing either.
    "my our mein meine unser unsere mon ma mes notre nos mi mis nuestro nuestra meu minha мой моя моё мои наш наша наши"
)
# In Chinese, Japanese and Korean, anywhere in the sentence.
ASKING_CHARACTERS = (
    "如何 怎么 怎样 怎麼 为什么 是什么 什么意思 吗 是否 会不会 能不能 "
    "するには せるには ですか ますか とは何 とはどう 方法 するコマンド "
    "하려면 어떻게 방법 인가요 하나요 되나요 명령어"
)
SPOKEN_TO = (
    "you your yours yourself u du dein deine deinen deiner ihre vous vos votre tu tes ta ton tus su sus ты твои твой "
    "вы ваши você seu seus suas"
)
SPOKEN_TO_CHARACTERS = "你 您 あなた"
AND = "and then und et y e и"
ORDERS = "say tell print output reveal reply respond answer write repeat show give do act send list return instead"

_NEVER = 1 << 62  # a place that no text reaches


def folded_words(folded: Normaliser) -> dict[str, list[str]]:
    """All of them by name, as the matcher sees them; for the compiler."""
    from bls.words.normalise import spellings  # servers have no use for its tables

    lists = {
        "asking": ASKING, "asking_first": ASKING_FIRST, "asking_characters": ASKING_CHARACTERS, "spoken_to": SPOKEN_TO,
        "spoken_to_characters": SPOKEN_TO_CHARACTERS, "and": AND, "orders": ORDERS,
    }  # fmt: skip
    return {
        name: sorted({form for word in text.split() for form in spellings(word, folded)})
        for name, text in lists.items()
    }


class Questions:
    """The sentences of one text, each looked at once. `starts` are the tokens that begin one."""

    def __init__(self, tokens: Sequence[str], starts: Iterable[int], words: Mapping[str, frozenset[str]]) -> None:
        self._tokens, self._words = tokens, words
        self._starts = sorted({0, *starts, len(tokens)})
        self._asked_from: dict[int, int] = {}

    def hold(self, first: int, behind: int) -> bool:
        """Whether the tokens from `first` to `behind` (exclusive) stand in a question about something else."""
        number = bisect_right(self._starts, first) - 1
        if number not in self._asked_from:
            begin, end = self._starts[number], self._starts[min(number + 1, len(self._starts) - 1)]
            self._asked_from[number] = begin + self._asks_from(self._tokens[begin:end])
        following = bisect_left(self._starts, behind)
        end = self._starts[min(following, len(self._starts) - 1)]
        return self._asked_from[number] <= first and not self._orders(self._tokens[behind : min(end, behind + 3)])

    def _asks_from(self, sentence: Sequence[str]) -> int:
        """Behind which of its tokens a sentence asks; behind none where it speaks to somebody."""
        words, joined = self._words, "".join(sentence)
        spoken = not words["spoken_to"].isdisjoint(sentence)
        if spoken or any(phrase in joined for phrase in words["spoken_to_characters"]):
            return _NEVER
        if any(phrase in joined for phrase in words["asking_characters"]):
            return 0
        if sentence and sentence[0] in words["asking_first"]:
            return 1
        return next((place for place, token in enumerate(sentence, 1) if token in words["asking"]), _NEVER)

    def _orders(self, behind: Sequence[str]) -> bool:
        """Whether "and print" or "and instead say" follows at once."""
        words = self._words
        return bool(behind) and behind[0] in words["and"] and not words["orders"].isdisjoint(behind[1:])
