"""Whether words stand in a question about something else: "How do I make git ignore previous changes?".

Such a sentence asks or tells ("My style sheet ..."), speaks to nobody ("you") and orders nothing ("and print ...").
Patterns that begin with a ? don't count in one. The words are folded by the compiler, as the patterns' own are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bls.words.normalise import Normaliser

# Anywhere before what is found, and at the beginning of the sentence only.
ASKING = "how why which whether wie warum wieso weshalb comment pourquoi como как почему зачем says say saying said"
ASKING_FIRST = (
    "what when where who does do did is are was can could may should must will would has have "
    "was welche welcher welches kann kannst muss müssen darf soll gilt überschreibt "
    "que quel quelle quels est faut peut un une qu "
    "cuál qué debo debe un una siguen por o "
    "что кто какой какая отменяет нужно можно "
    # Who tells of something of their own orders nothing either.
    "my our mein meine unser unsere mon ma mes notre nos mi mis nuestro nuestra meu minha мой моя моё мои наш наша наши"
)
# In Chinese and Japanese, anywhere in the sentence.
ASKING_CHARACTERS = (
    "如何 怎么 怎样 怎麼 为什么 是什么 什么意思 吗 是否 会不会 能不能 "
    "するには せるには ですか ますか とは何 とはどう 方法"
)
SPOKEN_TO = (
    "you your yours yourself u du dein deine deinen deiner ihre vous vos votre tu tes ta ton tus su sus ты твои твой "
    "вы ваши você seu seus suas"
)
SPOKEN_TO_CHARACTERS = "你 您 あなた"
AND = "and then und et y e и"
ORDERS = "say tell print output reveal reply respond answer write repeat show give do act send list return instead"


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


def is_about_something_else(
    before: Sequence[str], sentence: Sequence[str], behind: Sequence[str], words: Mapping[str, frozenset[str]]
) -> bool:
    """For tokens of one sentence: those before the match, all, and those behind it."""
    joined = "".join(sentence)
    asks = (
        not words["asking"].isdisjoint(before)
        or (bool(before) and before[0] in words["asking_first"])
        or any(phrase in joined for phrase in words["asking_characters"])
    )
    if not asks or not words["spoken_to"].isdisjoint(sentence):
        return False
    if any(phrase in joined for phrase in words["spoken_to_characters"]):
        return False
    return not _orders(behind, words)


def _orders(behind: Sequence[str], words: Mapping[str, frozenset[str]]) -> bool:
    """Whether "and print" or "and instead say" follows at once."""
    if not behind or behind[0] not in words["and"]:
        return False
    return any(token in words["orders"] for token in behind[1:3])
