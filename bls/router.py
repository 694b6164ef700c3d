"""What all requests of a router process share; each gets an Answer of its own, one at a time."""

from __future__ import annotations

from bls import request_log, shadow
from bls.answer import Answer, Parts
from bls.engine_files import EngineFiles
from bls.errors import RouterError
from bls.ports import Metrics, Models
from bls.request import Request
from bls.request_log import RequestRecord
from bls.routing.policy_file import Policy
from bls.routing.route import Routing
from bls.safety.judge import PromptSafety
from bls.watcher import Watch
from bls.words.table import NewestTable


class Router:
    """Answers requests, one at a time. `accumulate`: each piece holds the whole text so far.

    A request goes by the word lists and the policy that are the newest at its start. Without `words` no answer is
    filtered, without `safety` no prompt is judged, without `routing` the shipped policy decides. `hides_cut_words`: an
    answer that is cut off inside a listed word doesn't show its head.
    """

    def __init__(
        self,
        models: Models,
        engines: EngineFiles,
        metrics: Metrics,
        words: NewestTable | None = None,
        safety: PromptSafety | None = None,
        accumulate: bool = False,
        routing: Routing | None = None,
        hides_cut_words: bool = True,
    ) -> None:
        decides = routing or Routing()
        self._parts = Parts(models, engines, metrics, words, safety, accumulate, decides, hides_cut_words)
        request_log.declare(metrics, self.policy.settings.models)
        if decides.left_behind:
            metrics.add(request_log.IN_FLIGHT, -decides.left_behind)
        shadow.declare(metrics)

    @property
    def policy(self) -> Policy:
        """The newest."""
        return self._parts.routing.policy

    def answer(self, request: Request, watch: Watch) -> Answer:
        """The answer to one request, to be iterated once."""
        return Answer(self._parts, request, watch)

    def refuse(self, request_id: str, error: RouterError) -> None:
        """Logs and counts a request that could not even be read."""
        RequestRecord(request_id, finish=error.prefix.lower()).report(self._parts.metrics)

    def abandon(self) -> None:
        """The request that is being answered never comes back to its thread; its client has its end."""
        self._parts.routing.abandon()
        self._parts.metrics.add(request_log.IN_FLIGHT, -1)

    def run_shadow(self, due: shadow.Shadow, watch: Watch) -> None:
        """Runs what an answer left to run unseen; its client must have got its end."""
        due.run(self._parts.models, watch, self._parts.metrics)
