"""One answer, from the request to its last piece: judge it, count its tokens, decide, stream the engine's ids as text.

Plain generators that know nothing of Triton: `Models` is the door to the other models, `Watch` to client and clock.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

from bls import request_log, shadow
from bls.answer_filter import AnswerFilter, ThinkingCut
from bls.answer_text import AnswerText
from bls.arrays import Tensors
from bls.encoding import encoded_for_each
from bls.engine_files import EngineFiles
from bls.engine_stream import EngineStream, output_ids
from bls.errors import BadRequest, EngineFailed, EngineUnavailable, RouterError
from bls.ports import Metrics, Models
from bls.prompt_facts import prompt_of
from bls.reply import LOG_PROBS, Reply, accumulated, joined
from bls.request import Request, with_client_names
from bls.request_log import RequestRecord
from bls.routing.decision import NO_MODEL, Decision, Prompt
from bls.routing.policy_file import Policy
from bls.routing.route import Route, Routing
from bls.routing.settings import CUT
from bls.safety.judge import Judging, PromptSafety, Unjudged, Verdict
from bls.safety.settings import MASK, REFUSE
from bls.tokens.stop_words import WordStop
from bls.tokens.thinking import ends_thinking
from bls.watcher import Watch
from bls.words.stream_filter import WordFilter
from bls.words.table import NewestTable

_TAIL_IDS = 16  # of a prompt, that show whether it ends in <think>


@dataclass(frozen=True)
class Parts:
    """What all requests of a router process share."""

    models: Models
    engines: EngineFiles
    metrics: Metrics
    words: NewestTable | None
    safety: PromptSafety | None
    accumulate: bool
    routing: Routing
    hides_cut_words: bool


class Answer(Iterator[Reply]):
    """The pieces of one answer, the last with a finish_reason; without `stream`, exactly one.

    Iterating raises a RouterError; the client then has got nothing, or the pieces until the engine broke.
    `shadow` is what is to run unseen once it has ended, where the policy wants that.
    """

    def __init__(self, parts: Parts, request: Request, watch: Watch) -> None:
        self.shadow: shadow.Shadow | None = None
        self._parts = parts
        self._request = request
        self._watch = watch
        self._entry = RequestRecord(request.id)
        self._replies = self._counted()

    def __next__(self) -> Reply:
        return next(self._replies)

    def close(self) -> None:
        """Ends it wherever it is, its engine included."""
        self._replies.close()

    def _counted(self) -> Generator[Reply, None, None]:
        """All of it, logged and counted once, whatever happens."""
        entry, metrics, request = self._entry, self._parts.metrics, self._request
        routing, characters = self._parts.routing, len(request.text) + len(request.messages)
        metrics.add(request_log.IN_FLIGHT, 1)
        try:
            with routing.arrival(routing.policy, characters, request.priority), closing(self._judged()) as replies:
                if not request.stream:
                    yield joined(replies)
                elif self._parts.accumulate:
                    yield from accumulated(replies)
                else:
                    yield from replies
        except RouterError as error:
            entry.finish = error.prefix.lower()
            raise with_client_names(error) if isinstance(error, BadRequest) else error from None
        finally:
            entry.report(metrics)
            if entry.route is not None:
                self._record(entry.route)
            metrics.add(request_log.IN_FLIGHT, -1)

    def _record(self, route: Route) -> None:
        routing = self._parts.routing
        routing.record(route, self._entry.outcome())
        if other := routing.shadow_of(route):
            shadow.count_decision(route.made, other, self._entry.output_tokens, self._parts.metrics)

    def _judged(self) -> Generator[Reply, None, None]:
        routing, policy = self._parts.routing, self._parts.routing.policy
        word_filter = self._filter(policy)
        judging = self._begin_judging(policy)
        if judging.verdict.action == REFUSE:
            yield self._refused(judging.verdict)
            return
        if judging.verdict.action == MASK:
            masked = judging.verdict
            self._request = replace(self._request, text=masked.text or "", messages=masked.messages or "")
        encoded = encoded_for_each(self._parts.models, self._parts.engines, self._request)
        with closing(self._stream(encoded, word_filter)) as stream:
            route = self._start_early(stream, policy, encoded, judging)
            verdict = judging.final()
            if verdict.action == REFUSE:
                self._undo(stream, "refused")
                yield self._refused(verdict)  # and the engine is stopped behind it
                return
            prompt = self._prompt(policy, encoded, verdict)
            if route is not None and not routing.holds_for(route, prompt):
                self._undo(stream, "rerouted")
                stream.close()
                route = None
            self._judged_as(verdict)
            self._entry.route = known = route or routing.route(policy, prompt)
            if known.decision.is_refusal:
                yield self._refusal(policy.settings.refusal, known.decision, verdict)
                return
            if route is None:
                stream.start(known)
            yield from self._streamed(stream, known, encoded, word_filter, verdict)

    def _filter(self, policy: Policy) -> AnswerFilter | None:
        table = self._parts.words.table() if self._parts.words else None
        if policy.settings.thinking == CUT:
            return ThinkingCut(table)
        return WordFilter(table) if table else None

    def _begin_judging(self, policy: Policy) -> Judging:
        request, safety = self._request, self._parts.safety
        if safety is None:
            return Unjudged()
        table = policy.settings.safety
        return safety.begin(table, request.text, request.messages, request.apply_chat_template, request.tenant)

    def _start_early(
        self, stream: EngineStream, policy: Policy, encoded: Mapping[str, Tensors], judging: Judging
    ) -> Route | None:
        """Where a check is still at work and an engine has nothing else to begin with, the way that the prompt would go
        by what is known: its engine has given a first response, which nobody sees before the verdict."""
        if not (judging.is_open and policy.settings.early_start and self._request.stream):
            return None
        route = self._parts.routing.route(policy, self._prompt(policy, encoded, judging.verdict))
        if route.decision.is_refusal or not route.is_quiet:
            return None
        stream.start(route)
        return route

    def _undo(self, stream: EngineStream, outcome: str) -> None:
        """Counts an engine that was started for nothing."""
        if stream.has_started:
            tokens = len(output_ids(stream.first)) if stream.first is not None else 0
            self._parts.metrics.add(request_log.EARLY_STARTS_UNDONE, outcome=outcome)
            self._parts.metrics.add(request_log.EARLY_TOKENS, tokens)

    def _prompt(self, policy: Policy, encoded: Mapping[str, Tensors], verdict: Verdict) -> Prompt:
        contexts = {model: self._parts.engines.manifest(model).context_tokens for model in encoded}
        return prompt_of(self._request, policy, encoded, contexts, verdict)

    def _refused(self, verdict: Verdict) -> Reply:
        """By a check of the prompt."""
        self._judged_as(verdict)
        return self._refusal(verdict.reply, Decision(NO_MODEL, verdict.reason, 0), verdict)

    def _judged_as(self, verdict: Verdict) -> None:
        entry = self._entry
        entry.verdict, entry.failed_checks, entry.prompt_lines = (
            ":".join(_named(verdict)),
            verdict.failed,
            verdict.lines,
        )

    def _refusal(self, text: str, decision: Decision, verdict: Verdict) -> Reply:
        self._entry.reason, self._entry.finish = decision.reason, "refused"
        return Reply(text, finish_reason="refused", decision=decision, verdict=_named(verdict))

    def _stream(self, encoded: Mapping[str, Tensors], word_filter: AnswerFilter | None) -> EngineStream:
        request = self._request
        may_be_cut = bool(request.stop_words or request.bad_words or (word_filter and word_filter.may_terminate))
        return EngineStream(self._parts.models, request, self._watch, encoded, may_be_cut)

    def _streamed(
        self,
        stream: EngineStream,
        route: Route,
        encoded: Mapping[str, Tensors],
        word_filter: AnswerFilter | None,
        verdict: Verdict,
    ) -> Iterator[Reply]:
        """The engine's answer as text, from the first engine on that took the request."""
        entry, answered = self._entry, shadow.Answered(self._request, route, encoded)
        if self._request.max_tokens != stream.max_tokens:
            self._request = replace(self._request, max_tokens=stream.max_tokens)
        text = self._text(route, encoded, word_filter, verdict)
        try:
            yield from self._pieces(stream, text, answered)
        finally:
            if word_filter:
                entry.words_version, entry.filter_hits = word_filter.version, word_filter.totals
                entry.filter_lines = list(word_filter.lines)
        self.shadow = answered.shadow(entry.finish)

    def _text(
        self, route: Route, encoded: Mapping[str, Tensors], word_filter: AnswerFilter | None, verdict: Verdict
    ) -> AnswerText:
        """What becomes of the ids of the engine that took the request."""
        request, entry, decision = self._request, self._entry, route.decision
        entry.model, entry.reason = decision.model, decision.reason
        entry.input_tokens = route.prompt.tokens[decision.model]
        stops = (*request.stop_words, *request.bad_words)
        words = WordStop(stops) if stops else None
        decoder = self._parts.engines.decoder(decision.model)
        text = AnswerText(decoder, words, word_filter, decision, entry.input_tokens, _named(verdict))
        prompt_ids = encoded[decision.model]["INPUT_ID"][0]
        if request.echo:
            text.echo(prompt_ids.tolist())
        elif isinstance(word_filter, ThinkingCut):
            end = self._parts.engines.decoder(decision.model).push(prompt_ids[-_TAIL_IDS:].tolist())
            word_filter.thinking.is_open = ends_thinking(end)
        return text

    def _pieces(self, stream: EngineStream, text: AnswerText, answered: shadow.Answered) -> Iterator[Reply]:
        # One flat loop: an engine that computes leaves the caches cold, and then each further call and object between
        # two responses costs microseconds (python -m scripts.bench response).
        entry, watch, max_tokens = self._entry, self._watch, self._request.max_tokens
        has_more = not self._request.outputs.isdisjoint(LOG_PROBS)
        response = stream.first
        while response is not None:
            ids = output_ids(response)
            entry.count(len(ids))
            answered.ids += ids
            text.push(ids, {name: response[name] for name in LOG_PROBS if name in response} if has_more else None)
            if text.has_ended or watch.look_when_due() is not None:
                break
            # The last tokens ride with the end, which then comes at once.
            if text.has_text and entry.output_tokens < max_tokens:
                entry.pieces += 1
                yield text.take(is_first=entry.pieces == 1)
            response = self._following(stream)
        if text.is_filtered:
            entry.tokens_saved = max_tokens - entry.output_tokens
        if not entry.is_broken:  # Else what is held may be the beginning of what no client may see.
            text.finish(is_cut=self._parts.hides_cut_words and self._is_cut)
        entry.finish = self._finish_reason(text)
        last = text.take(entry.finish)
        if self._request.is_guided and text.is_changed:  # what hides a word knows nothing of the structure
            last = last._replace(filtered_json=True)
        yield last if entry.pieces or last.text else last._replace(empty_because=self._why_empty())

    def _why_empty(self) -> str:
        """In words for who wonders; the finish reason says the rest."""
        if self._entry.finish not in ("stop", "length"):
            return ""
        if self._entry.output_tokens:
            return "the model's answer has no text; THINKING of the policy may have cut out what it thought"
        if self._request.messages or self._request.apply_chat_template:
            return "the model ended its answer at once"
        return "the model ended its answer at once: text_input went to it without a chat template (apply_chat_template)"

    def _following(self, stream: EngineStream) -> Tensors | None:
        """The next response; an engine that breaks once a piece has gone out ends the answer: that can't be taken back,
        nor begun anew.

        Where nothing has, the engine's error is raised: it says more than an answer cut short.
        """
        entry = self._entry
        try:
            return stream.following()
        except (EngineFailed, EngineUnavailable) as error:
            if entry.pieces == 0 or not self._request.stream:
                raise
            entry.is_broken = True
            logging.warning(f"request id={entry.request_id[:64]!r}: {error}")
            return None

    @property
    def _is_cut(self) -> bool:
        """Whether the engine had more to say."""
        return self._entry.output_tokens >= self._request.max_tokens or bool(self._watch.outcome)

    def _finish_reason(self, text: AnswerText) -> str:
        if text.is_filtered:
            return "filtered"
        if text.stopped_by is not None:
            return "stop_word" if text.stopped_by in self._request.stop_words else "bad_word"
        if self._entry.is_broken:
            return "engine_error"
        if self._entry.output_tokens >= self._request.max_tokens:
            return "length"
        return self._watch.outcome or "stop"


def _named(verdict: Verdict) -> tuple[str, str]:
    return verdict.action, verdict.reason
