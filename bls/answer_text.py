"""An engine's ids become the text that the client may see: decoded, cut at a stop word, filtered, in pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bls.answer_filter import AnswerFilter
from bls.arrays import Array
from bls.reply import Reply, joined_log_probs
from bls.routing.decision import Decision
from bls.tokens.stop_words import WordStop
from bls.tokens.stream_decoder import StreamDecoder


class AnswerText:
    """Takes an engine's responses and gives Reply pieces. `stopped_by` is the stop or bad word that ended the text.

    Without a filter each text goes out as it is.
    """

    def __init__(
        self,
        decoder: StreamDecoder,
        words: WordStop | None,
        word_filter: AnswerFilter | None,
        decision: Decision,
        input_tokens: int,
        verdict: tuple[str, str],
    ) -> None:
        """`words` are the stop and bad words, if any; `verdict` is the prompt's: action and reason."""
        self._decoder = decoder
        self._words = words
        self._filter = word_filter
        self._decision = decision
        self._input_tokens = input_tokens
        self._verdict = verdict
        self._text = ""
        self._tokens = 0
        self._log_probs: list[Mapping[str, Array]] = []

    @property
    def stopped_by(self) -> str | None:
        return None if self._words is None else self._words.hit

    @property
    def is_filtered(self) -> bool:
        """Whether a terminating sensitive word has ended the text."""
        return self._filter is not None and self._filter.terminated

    @property
    def is_changed(self) -> bool:
        """Whether the filter has hidden or replaced something."""
        return self._filter is not None and any(action != "monitor" for _, action, _ in self._filter.totals)

    @property
    def has_ended(self) -> bool:
        """Whether nothing that follows can reach the client, so that the engine had better stop."""
        return self.stopped_by is not None or self.is_filtered

    @property
    def has_text(self) -> bool:
        """Whether there is text to send; tokens without text wait for the next piece."""
        return bool(self._text)

    def echo(self, prompt_ids: Sequence[int]) -> None:
        """Puts the prompt in front of the answer; no stop word is looked for in it."""
        self._text += self._passed(self._decoder.push(prompt_ids))

    def push(self, ids: Sequence[int], log_probs: Mapping[str, Array] | None = None) -> None:
        """New ids of the engine, with their log probabilities."""
        self._tokens += len(ids)
        self._text += self._passed(self._unstopped(self._decoder.push(ids)))
        if log_probs:
            self._log_probs.append(log_probs)

    def finish(self, is_cut: bool = False) -> None:
        """No id follows: what was held back comes out, unless a word ended the text; see the filter for `is_cut`."""
        if self.stopped_by is None:
            self._text += self._passed(self._unstopped(self._decoder.finish()))
            if self._words is not None:
                self._text += self._passed(self._words.finish())
        if self._filter is not None:
            self._text += self._filter.finish(is_cut)

    def take(self, finish_reason: str = "", *, is_first: bool = False) -> Reply:
        """What has gathered since the last piece; with `finish_reason` it is the last one."""
        reply = Reply(
            self._text,
            self._tokens,
            joined_log_probs(self._log_probs) if self._log_probs else {},
            finish_reason,
            self._decision,
            self._input_tokens,
            self._filter.version if self._filter is not None else "",
            self._verdict,
            is_first,
        )
        self._text, self._tokens = "", 0
        if self._log_probs:
            self._log_probs = []
        return reply

    def _unstopped(self, text: str) -> str:
        return text if self._words is None else self._words.push(text)

    def _passed(self, text: str) -> str:
        return text if self._filter is None else self._filter.push(text)
