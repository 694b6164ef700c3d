"""An engine's ids become the text that the client may see: decoded, cut at a stop word, gathered into pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bls.arrays import Array
from bls.decision import Decision
from bls.reply import Reply, joined_log_probs
from bls.stop_words import WordStop
from bls.stream_decoder import StreamDecoder


class AnswerText:
    """Takes an engine's responses and gives Reply pieces. `stopped_by` is the stop or bad word that ended the text."""

    def __init__(self, decoder: StreamDecoder, words: WordStop, decision: Decision, input_tokens: int) -> None:
        self._decoder = decoder
        self._words = words
        self._decision = decision
        self._input_tokens = input_tokens
        self._text = ""
        self._tokens = 0
        self._log_probs: list[Mapping[str, Array]] = []

    @property
    def stopped_by(self) -> str | None:
        return self._words.hit

    @property
    def has_text(self) -> bool:
        """Whether there is text to send; tokens without text wait for the next piece."""
        return bool(self._text)

    def echo(self, prompt_ids: Sequence[int]) -> None:
        """Puts the prompt in front of the answer; no word is looked for in it."""
        self._text += self._decoder.push(prompt_ids)

    def push(self, ids: Sequence[int], log_probs: Mapping[str, Array]) -> None:
        """New ids of the engine, with their log probabilities."""
        self._tokens += len(ids)
        self._text += self._words.push(self._decoder.push(ids))
        if log_probs:
            self._log_probs.append(log_probs)

    def finish(self) -> None:
        """No id follows: what was held back comes out, unless a word ended the text."""
        if self.stopped_by is None:
            self._text += self._words.push(self._decoder.finish())
            self._text += self._words.finish()

    def take(self, finish_reason: str = "") -> Reply:
        """What has gathered since the last piece; with `finish_reason` it is the last one."""
        log_probs = joined_log_probs(self._log_probs) if self._log_probs else {}
        reply = Reply(self._text, self._tokens, log_probs, finish_reason, self._decision, self._input_tokens)
        self._text, self._tokens, self._log_probs = "", 0, []
        return reply
