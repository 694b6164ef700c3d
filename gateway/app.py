"""The ASGI application: whose a path is, who may pass, and the one place where what goes wrong becomes a response."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from gateway import contexts, origins, routes
from gateway.ask import ROUTER
from gateway.draining import Draining
from gateway.exchange import ClientLeft, Exchange
from gateway.failures import Away, Broken, Failure, NoKey, NotFound, TooLate
from gateway.generation import Generation
from gateway.keys import ANYONE, Key, Keys
from gateway.ledger import Ledger
from gateway.limits import Limits
from gateway.metrics import Metrics
from gateway.parking import Parking
from gateway.settings import Settings
from gateway.shared import Shared
from gateway.triton import Triton
from gateway.tritons_page import TritonsPage
from gateway.visit import Visit

LEFT = 499  # nginx's status for a client that left
SWEEP_S = 0.25
_LEARN_S = 1.0  # between two questions about the engines' contexts, until there is an answer


class Gateway:
    """One process's. Must be made within the event loop; `close` ends it. Raises BadKeys and BadLedger."""

    def __init__(self, settings: Settings, shared: Shared) -> None:
        self.settings = settings
        self.created = int(time.time())
        self.triton = Triton(settings.triton, settings.server_silent_s)
        self.parking = Parking(lambda: self.triton.is_ready(ROUTER), settings.parked_s, settings.max_parked)
        self.generation = Generation(self.triton, self.parking, settings)
        self.keys = Keys(settings.keys)
        self.shared = shared
        self.limits = Limits(shared.accounts)
        self.ledger = Ledger(settings.ledger)
        self.metrics = Metrics(shared.pages.get(shared.worker) if shared.pages else b"")
        self.contexts: dict[str, int] = {}
        self.tritons_page = TritonsPage(settings.triton_metrics)
        self.running = 0  # answers
        self.draining = Draining(shared.drain, settings.lame_duck_s, self.parking)
        self.live: set[Exchange] = set()
        work = (self._sweep(), self._learn_contexts(), self.triton.silence.mind())
        self._tasks: set[asyncio.Task[None]] = set(map(asyncio.create_task, work))

    async def infer(self, request: Any) -> dict[str, tuple[list[int], bytes]]:
        """The outputs of a model that is not decoupled; waits for a server that is away."""
        ticket = None
        while True:
            try:
                return await self.triton.infer(request, self.settings.timeout_s)
            except Away as away:
                if await self.triton.is_ready(ROUTER) and not await self.triton.is_ready(request.model_name):
                    raise NotFound("this server has no model for that", "model", "model_not_found") from None
                failure = away
            ticket = ticket or self.parking.ticket()
            await ticket.wait(failure)

    def publish(self) -> None:
        """Brings the gauges up to date, and lets the other workers read all of the metrics."""
        own = self.metrics
        own.set("llm_gateway_in_flight", self.running)
        own.set("llm_gateway_streams", sum(exchange.is_stream for exchange in self.live))
        own.set("llm_gateway_parked", self.parking.parked)
        own.set("llm_gateway_parked_total", self.parking.total)
        own.set("llm_gateway_ledger_failures_total", self.ledger.failures)
        own.set("llm_gateway_draining", self.draining.is_on)
        if self.shared.pages:
            self.shared.pages.put(self.shared.worker, own.snapshot())

    def all_metrics(self) -> Metrics:
        """Those of all processes together."""
        self.publish()
        pages = self.shared.pages
        return self.metrics.with_others(pages.others(self.shared.worker) if pages else [])

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self.triton.close()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        exchange.closes = lambda: self.draining.is_on
        self.live.add(exchange)
        visit = None
        try:
            visit = await self._visit(exchange)
        finally:
            self.live.discard(exchange)
            exchange.close()
            self._note(exchange, visit)

    async def _visit(self, exchange: Exchange) -> Visit | None:
        """Answers; no exception of the request's own comes out."""
        visit = None
        try:
            if self.settings.origins:
                exchange.more_headers += origins.headers(exchange, self.settings.origins)
                if origins.is_preflight(exchange) and exchange.more_headers:
                    await origins.answer_preflight(exchange)
                    return None
            routes.check_host(exchange, self.settings)
            handler, is_open = routes.find(exchange, self.settings)
            visit = Visit(self, exchange, self._key(exchange, is_open))
            await handler(visit)
        except Failure as failure:
            await self._fail(exchange, failure)
        except ClientLeft:
            exchange.has_left = True
        except asyncio.CancelledError:
            await self._cancelled(exchange)
        except Exception as error:  # A bug of ours must not leave the client waiting.
            logging.exception("request id=%s", exchange.request_id)
            await self._fail(exchange, Broken(f"the gateway failed: {type(error).__name__}"))
        finally:
            if visit is not None:
                visit.settle()
        return visit

    def _key(self, exchange: Exchange, is_open: bool) -> Key:
        try:
            return self.keys.find(exchange.headers)
        except NoKey as failure:
            if is_open:
                return ANYONE
            failure.challenge = routes.challenge(exchange)
            self.metrics.add("llm_gateway_refused_total", why="key")
            raise

    async def _fail(self, exchange: Exchange, failure: Failure) -> None:
        """The true status before the response has begun; after that an event with the error, and the end."""
        try:
            if not exchange.status:
                body = routes.error_body(exchange, failure)
                await exchange.reply(failure.status, body, failure.headers())
            elif exchange.is_stream:
                self.metrics.add("llm_gateway_broken_streams_total")
                await exchange.finish(routes.error_event(exchange, failure))
        except (ClientLeft, asyncio.CancelledError):
            exchange.has_left = True

    async def _cancelled(self, exchange: Exchange) -> None:
        if exchange.cut_while == "body":
            await self._fail(exchange, TooLate(f"the body did not come within {self.settings.body_s:g} s"))
        elif exchange.cut_while == "sending":
            self.metrics.add("llm_gateway_slow_readers_total")
        elif not exchange.has_left:
            raise asyncio.CancelledError  # the whole process ends

    def _note(self, exchange: Exchange, visit: Visit | None) -> None:
        """One line in the log, the metrics and the ledger; never a text."""
        status = LEFT if exchange.has_left or exchange.cut_while == "sending" else exchange.status
        path, seconds = routes.label(exchange.path), time.monotonic() - exchange.began
        self.metrics.add("llm_gateway_requests_total", path=path, status=str(status))
        if visit is None or path in routes.QUIET:
            return
        tally, key = visit.tally, visit.key.name
        logging.info(
            "request id=%s key=%s %s %s status=%d model=%s reason=%s finish=%s"
            " prompt_tokens=%d completion_tokens=%d ms=%.1f",
            exchange.request_id, key, exchange.method, path, status, tally.model or "-", tally.reason or "-",
            tally.finish or "-", tally.prompt_tokens, tally.completion_tokens, seconds * 1000,
        )  # fmt: skip
        if tally.total_tokens:
            self._charge(visit, path, status, seconds)

    def _charge(self, visit: Visit, path: str, status: int, seconds: float) -> None:
        tally, key = visit.tally, visit.key
        cost = round(tally.cost, 9)
        self.limits.spend(key.name, tally.total_tokens, cost)
        self.metrics.add("llm_gateway_prompt_tokens_total", tally.prompt_tokens, key=key.name)
        self.metrics.add("llm_gateway_completion_tokens_total", tally.completion_tokens, key=key.name)
        self.metrics.add("llm_gateway_cost_total", cost, key=key.name)
        self.ledger.write(
            {
                "time": round(time.time(), 3), "id": visit.exchange.request_id, "key": key.name, "tenant": key.tenant,
                "path": path, "status": status, "model": tally.model, "reason": tally.reason, "finish": tally.finish,
                "prompt_tokens": tally.prompt_tokens, "completion_tokens": tally.completion_tokens, "cost": cost,
                "ms": round(seconds * 1000, 1),
            }
        )  # fmt: skip

    async def _sweep(self) -> None:
        """What has to be looked at now and then, for all requests together rather than by a timer each."""
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                self.keys.refresh()
                self.publish()
                self.draining.look(self.running)
                self._look_at_all(time.monotonic())
            except Exception:  # It must go on for the others.
                logging.exception("the sweeper")

    def _look_at_all(self, now: float) -> None:
        patience = {"body": self.settings.body_s, "sending": self.settings.slow_reader_s}
        for exchange in list(self.live):
            if exchange.waits_since is not None and now - exchange.waits_since > patience[exchange.phase]:
                exchange.cut()
            elif exchange.is_silent(self.settings.silent_s):
                # Never waited for here: a client that takes nothing is the sweeper's own business.
                task = asyncio.create_task(exchange.keep_alive())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _learn_contexts(self) -> None:
        while not self.contexts:
            self.contexts = await contexts.ask(self.triton, self.settings)
            await asyncio.sleep(_LEARN_S)
