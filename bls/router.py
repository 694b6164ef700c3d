"""The life of a request: judge it, count its tokens, decide, stream the engine's ids as text, end exactly once.

Plain generators that know nothing of Triton: `Models` is the door to the other models, `Watch` to client and clock.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace

from bls import contract, request_log, shadow
from bls.answer_text import AnswerText
from bls.arrays import boolean, int32, strings
from bls.engine_files import Engines
from bls.engine_stream import EngineStream, Models, Tensors
from bls.errors import BadRequest, EngineFailed, EngineUnavailable, RouterError
from bls.prompt_facts import prompt_of
from bls.reply import LOG_PROBS, Reply, accumulated, joined
from bls.request import Request, in_our_names
from bls.request_log import Metrics, Record
from bls.routing.decision import NO_MODEL, Decision
from bls.routing.policy_file import Policy
from bls.routing.route import Route, Routing
from bls.safety.judge import PromptSafety, Verdict
from bls.safety.settings import MASK, REFUSE
from bls.tokens.stop_words import WordStop
from bls.watcher import Watch
from bls.words.stream_filter import WordFilter
from bls.words.table import NewestTable

_ENCODED = ("INPUT_ID", "STOP_WORDS_IDS", "OUT_END_ID", "OUT_PAD_ID")


class Router:
    """Answers requests, one at a time. `accumulate`: each piece holds the whole text so far.

    A request goes by the word lists and the policy that are the newest at its start. Without `words` no answer is
    filtered, without `safety` no prompt is judged, without `routing` the shipped policy decides.
    """

    def __init__(
        self,
        models: Models,
        engines: Engines,
        metrics: Metrics,
        words: NewestTable | None = None,
        safety: PromptSafety | None = None,
        accumulate: bool = False,
        routing: Routing | None = None,
    ) -> None:
        self._models = models
        self._engines = engines
        self._metrics = metrics
        self._words = words
        self._safety = safety
        self._accumulate = accumulate
        self._routing = routing or Routing()
        self._answered: tuple[shadow.Answered, Route] | None = None
        request_log.declare(metrics)
        shadow.declare(metrics)

    @property
    def policy(self) -> Policy:
        """The newest."""
        return self._routing.policy

    def answer(self, request: Request, watch: Watch) -> Generator[Reply, None, None]:
        """Yields the pieces of the answer, the last with a finish_reason; without `stream`, exactly one.

        Raises a RouterError; the client then has got nothing, or the pieces until the engine broke.
        """
        entry = Record(request.id)
        self._metrics.add(request_log.IN_FLIGHT, 1)
        try:
            with closing(self._answer(request, watch, entry)) as replies:
                if not request.stream:
                    yield joined(replies)
                elif self._accumulate:
                    yield from accumulated(replies)
                else:
                    yield from replies
        except RouterError as error:
            entry.finish = error.prefix.lower()
            raise in_our_names(error) if isinstance(error, BadRequest) else error from None
        finally:
            entry.report(self._metrics)
            if entry.route is not None:
                self._routing.record(entry.route, entry.outcome())
                if other := self._routing.shadow_of(entry.route):
                    shadow.count_decision(entry.route.made, other, entry.output_tokens, self._metrics)
            self._metrics.add(request_log.IN_FLIGHT, -1)

    @property
    def has_shadow(self) -> bool:
        """Whether the request that was answered last is to run on another engine too, unseen."""
        return self._answered is not None

    def run_shadow(self, watch: Watch) -> None:
        """Runs it; the client must have got its end."""
        if self._answered is not None:
            (answered, route), self._answered = self._answered, None
            shadow.run(self._models, answered, route, watch, self._metrics)

    def refuse(self, request_id: str, error: RouterError) -> None:
        """Logs and counts a request that could not even be read."""
        Record(request_id, finish=error.prefix.lower()).report(self._metrics)

    def _answer(self, request: Request, watch: Watch, entry: Record) -> Generator[Reply, None, None]:
        word_filter = WordFilter(self._words.table()) if self._words else None
        policy = self._routing.policy
        verdict = self._judge(request, policy, entry)
        if verdict.action == REFUSE:
            entry.reason, entry.finish = verdict.reason, "refused"
            decision = Decision(NO_MODEL, verdict.reason, 0)
            yield Reply(verdict.reply, finish_reason="refused", decision=decision, verdict=_named(verdict))
            return
        if verdict.action == MASK:
            request = replace(request, text=verdict.text or "", messages=verdict.messages or "")
        encoded = self._encode_for_each(request)
        contexts = {model: self._engines.manifest(model).context_tokens for model in encoded}
        prompt = prompt_of(request, policy, encoded, contexts, verdict)
        route = self._routing.route(policy, prompt)
        entry.route = route
        if route.decision.is_refusal:
            entry.reason, entry.finish = route.decision.reason, "refused"
            yield Reply(
                policy.settings.refusal, finish_reason="refused", decision=route.decision, verdict=_named(verdict)
            )
            return
        may_be_cut = bool(request.stop_words or request.bad_words or (word_filter and word_filter.may_terminate))
        stream = EngineStream(self._models, request, watch, encoded, may_be_cut)
        answered = shadow.Answered(request, route, encoded)
        self._answered = None
        with closing(stream):
            stream.start(route)
            decision = route.decision
            entry.model, entry.reason = decision.model, decision.reason
            entry.input_tokens = prompt.tokens[decision.model]
            words = WordStop((*request.stop_words, *request.bad_words))
            decoder = self._engines.decoder(decision.model)
            text = AnswerText(decoder, words, word_filter, decision, entry.input_tokens)
            if request.echo:
                text.echo(encoded[decision.model]["INPUT_ID"][0].tolist())
            try:
                for reply in self._pieces(request, watch, entry, stream, text, answered.ids):
                    yield replace(reply, verdict=_named(verdict)) if reply.finish_reason else reply
            finally:
                if word_filter:
                    entry.words_version, entry.filter_hits = word_filter.version, word_filter.totals
        way = answered.shadow(entry.finish)
        self._answered = (answered, way) if way else None

    def _pieces(
        self,
        request: Request,
        watch: Watch,
        entry: Record,
        stream: EngineStream,
        text: AnswerText,
        all_ids: list[int],
    ) -> Iterator[Reply]:
        for chunk in _until_it_breaks(request, stream, entry):
            ids = chunk["output_ids"].reshape(-1)[: int(chunk["sequence_length"].flat[0])].tolist()
            entry.count(len(ids))
            all_ids += ids
            text.push(ids, {name: chunk[name] for name in LOG_PROBS if name in chunk})
            if text.is_filtered:
                entry.tokens_saved = request.max_tokens - entry.output_tokens
            if text.has_ended or watch.look_when_due() is not None:
                break
            # The last tokens ride with the end, which then comes at once.
            if text.has_text and entry.output_tokens < request.max_tokens:
                entry.pieces += 1
                yield text.take()
        if not entry.is_broken:  # Else what is held may be the beginning of what no client may see.
            text.finish()
        entry.finish = _finish_reason(request, watch, entry, text)
        yield text.take(entry.finish)

    def _judge(self, request: Request, policy: Policy, entry: Record) -> Verdict:
        if self._safety is None:
            return Verdict()
        self._safety.settings = policy.settings.safety
        verdict = self._safety.judge(request.text, request.messages, request.apply_chat_template)
        entry.verdict, entry.failed_checks = ":".join(_named(verdict)), verdict.failed
        return verdict

    def _encode_for_each(self, request: Request) -> dict[str, Tensors]:
        """The prompt in each engine's tokens; one call for those that share a tokenizer."""
        calls: dict[str, Tensors] = {}
        encoded = {}
        for model in self._engines.models:
            tokenizer = self._engines.tokenized_by(model)
            if tokenizer not in calls:
                calls[tokenizer] = self._encode(request, self._engines.tier(tokenizer))
            encoded[model] = calls[tokenizer]
        return encoded

    def _encode(self, request: Request, tier: str) -> Tensors:
        tensors = {"REQUEST_OUTPUT_LEN": int32(request.max_tokens), "TIER": strings(tier)}
        if request.messages:
            tensors["MESSAGES"] = strings(request.messages)
        else:
            tensors["QUERY"] = strings(request.text)
            tensors["APPLY_CHAT_TEMPLATE"] = boolean(request.apply_chat_template)
        if request.stop_words:
            tensors["STOP_WORDS_DICT"] = strings(*request.stop_words)
        if request.end_id is not None:
            tensors["END_ID"] = int32(request.end_id)
        if request.pad_id is not None:
            tensors["PAD_ID"] = int32(request.pad_id)
        return self._models.call(contract.PREPROCESSING, tensors, _ENCODED)


def _until_it_breaks(request: Request, stream: EngineStream, entry: Record) -> Iterator[Tensors]:
    """What came before an engine broke, once a piece of it has gone out: that can't be taken back, nor begun anew.

    Where nothing has, the engine's error is raised: it says more than an answer cut short.
    """
    try:
        yield from stream
    except (EngineFailed, EngineUnavailable) as error:
        if entry.pieces == 0 or not request.stream:
            raise
        entry.is_broken = True
        logging.warning(f"request id={entry.request_id[:64]!r}: {error}")


def _named(verdict: Verdict) -> tuple[str, str]:
    return verdict.action, verdict.reason


def _finish_reason(request: Request, watch: Watch, entry: Record, text: AnswerText) -> str:
    if text.is_filtered:
        return "filtered"
    if text.stopped_by is not None:
        return "stop_word" if text.stopped_by in request.stop_words else "bad_word"
    if entry.is_broken:
        return "engine_error"
    if entry.output_tokens >= request.max_tokens:
        return "length"
    return watch.outcome or "stop"
