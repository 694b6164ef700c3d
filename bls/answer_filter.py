"""What an answer's text goes through on its way out: the word lists, and the cut of what the model only thinks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from bls.tokens.thinking import Part, Thinking
from bls.words.stream_filter import WordFilter
from bls.words.table import WordTable


class ThinkingCut:
    """Stands in for a WordFilter where the policy cuts thoughts out. They are looked at like the answer: a listed word
    in them counts, and one that ends answers ends this one."""

    def __init__(self, table: WordTable | None) -> None:
        self.thinking = Thinking()
        self.terminated = False
        self._table = table
        self._answer = WordFilter(table) if table else None
        self._thought = WordFilter(table) if table else None
        self._found: Counter[tuple[str, str]] = Counter()  # in thoughts that have ended: category and action
        self._lines: dict[str, None] = {}  # and by which lines

    @property
    def version(self) -> str:
        return self._answer.version if self._answer else ""

    @property
    def may_terminate(self) -> bool:
        return self._answer is not None and self._answer.may_terminate

    @property
    def totals(self) -> list[tuple[str, str, int]]:
        counts = self._found.copy()
        for each in filter(None, (self._answer, self._thought)):
            counts.update(_counted(each))
        return [(category, action, count) for (category, action), count in sorted(counts.items())]

    @property
    def lines(self) -> dict[str, None]:
        filters = filter(None, (self._answer, self._thought))
        return self._lines | {line: None for each in filters for line in each.lines}

    def push(self, text: str) -> str:
        """What may go out now that `text` has come."""
        return self._out(self.thinking.push(text))

    def finish(self, is_cut: bool = False) -> str:
        """The rest, at the end of the stream; for `is_cut` see WordFilter."""
        shown = self._out(self.thinking.finish())
        if self._answer is not None and not self.terminated:
            shown += self._answer.finish(is_cut)
        return shown

    def _out(self, parts: Iterable[Part]) -> str:
        return "".join([self._passed(part) for part in parts])

    def _passed(self, part: Part) -> str:
        if self.terminated:
            return ""
        if self._answer is None or self._thought is None or self._table is None:
            return "" if part.is_thought else part.text
        if not part.is_thought:
            shown = self._answer.push(part.text)
            self.terminated = self._answer.terminated
            return shown
        thought = self._thought
        thought.push(part.text)
        if part.is_last:
            thought.finish()
            self._found.update(_counted(thought))
            self._lines |= thought.lines
            self._thought = WordFilter(self._table)
        self.terminated = thought.terminated
        return self._last_words(thought) if self.terminated else ""

    def _last_words(self, thought: WordFilter) -> str:
        """Of the word that ended the answer, which comes after what was held back of that."""
        assert self._answer is not None and self._table is not None
        texts = {each.name: each.text for each in self._table.treatments}
        word = next(hit.category for hit in thought.hits if hit.action == "terminate")
        return self._answer.finish() + texts[word]


def _counted(word_filter: WordFilter) -> dict[tuple[str, str], int]:
    return {(category, action): count for category, action, count in word_filter.totals}


AnswerFilter = WordFilter | ThinkingCut
