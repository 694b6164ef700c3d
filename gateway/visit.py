"""A request together with whose it is, what it may, and what it has used."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec

from gateway import body as bodies
from gateway import finish, tracing
from gateway.ask import Ask, Piece
from gateway.exchange import Exchange
from gateway.failures import AboutToEnd, Forbidden, NotFound, Overloaded
from gateway.keys import Key
from gateway.limits import Admission
from gateway.tally import Tally

if TYPE_CHECKING:
    from gateway.app import Gateway

AUTO = ("auto", "llm_router")


class Visit:
    def __init__(self, gateway: Gateway, exchange: Exchange, key: Key) -> None:
        self.gateway = gateway
        self.exchange = exchange
        self.key = key
        self.tally = Tally(gateway.settings.prices)
        self._admission: Admission | None = None
        self._weight = 0
        self.is_begun = False  # whether the first piece of an answer is there

    async def read_body(self) -> bytes:
        """From here on a client that leaves is noticed."""
        found = await self.exchange.body(self.gateway.settings.max_body_bytes)
        self.exchange.watch()
        return found

    def tier(self, model: str) -> str:
        """The tier that a model's name stands for, "" for the router's own choice. Raises NotFound or Forbidden."""
        tiers = self.gateway.settings.tiers
        if model not in AUTO and model not in tiers and model not in tiers.values():
            known = ", ".join(self.gateway.settings.models)
            raise NotFound(f"the model {model[:64]!r} does not exist; there are {known}", "model", "model_not_found")
        self.check_model(model)
        return "" if model in AUTO else model

    def check_model(self, model: str) -> None:
        if self.key.models and model not in self.key.models:
            raise Forbidden(f"the key may not use the model {model[:64]!r}", "model")

    def admit(self, weight: int, tokens: int, choices: int = 1) -> None:
        """Lets so many answers in. Raises LimitReached, Overloaded or AboutToEnd."""
        gateway = self.gateway
        if gateway.draining.refuses:
            raise AboutToEnd("the gateway is about to end; ask again")
        if gateway.running + weight > gateway.settings.max_in_flight:
            raise Overloaded("too many requests are being answered; try again in a moment")
        self.tally = Tally(gateway.settings.prices, choices)
        self._admission = gateway.limits.admit(self.key, weight, tokens)
        self._weight = weight
        gateway.running += weight
        self.exchange.more_headers += gateway.limits.headers(self.key)

    def settle(self) -> None:
        """The request has ended, in whatever way."""
        if self._admission is not None:
            self._admission.settle(self.tally.total_tokens)
            self.gateway.running -= self._weight
            self._admission = None

    async def answers(self, asks: Sequence[Ask]) -> Any:
        """The pieces of all answers, counted and checked; the headers tell the route once the first is there."""
        exchange = self.exchange
        trace = tracing.context(exchange.headers)
        pieces = self.gateway.generation.answers(asks, exchange.request_id, self.key.tenant, trace)
        try:
            async for index, piece in pieces:
                if piece.finish:
                    finish.note_hidden(piece)
                self.tally.add(index, piece)
                if not self.is_begun:
                    self.is_begun = True
                    self.exchange.more_headers += _route_headers(piece)
                    if self.tally.first_s is not None:
                        self.gateway.metrics.first_token(time.monotonic() - self.exchange.began)
                if piece.finish:
                    finish.check(piece, self.gateway.settings.refusals_are_errors)
                yield index, piece
        finally:
            await pieces.aclose()

    async def whole(self, asks: Sequence[Ask]) -> tuple[list[str], list[Piece]]:
        """The texts of all answers and their last pieces, in the order of `asks`, once all have ended."""
        texts, ends = [""] * len(asks), [Piece()] * len(asks)
        async with aclosing(self.answers(asks)) as pieces:
            async for index, piece in pieces:
                texts[index] += piece.text
                ends[index] = piece
        return texts, ends

    def details(self, piece: Piece) -> dict[str, Any] | None:
        """What else is known of an answer, for those who ask by the header `x-router-details`."""
        if b"x-router-details" not in self.exchange.headers:
            return None
        route = msgspec.json.decode(piece.route_info) if piece.route_info else None
        told = ("model", "reason", "verdict", "verdict_reason", "words_version")
        return {"router": {name: getattr(piece, name) for name in told} | {"route": route, "cost": self.tally.cost}}


def _route_headers(piece: Piece) -> list[tuple[bytes, bytes]]:
    found = ((b"x-router-model", piece.model), (b"x-router-reason", piece.reason))
    return [(name, text.encode("ascii", "replace")) for name, text in found if text.isprintable() and text]


def fingerprint(piece: Piece) -> str | None:
    """The versions of the policy and of the word lists that this answer went by."""
    policy = msgspec.json.decode(piece.route_info).get("policy") if piece.route_info else ""
    parts = [part for part in (policy, piece.words_version) if part]
    return "fp_" + "_".join(parts) if parts else None


def new_id(prefix: str) -> str:
    return f"{prefix}{uuid.uuid4().hex}"


def estimate(body: bytes, max_tokens: int | None, answers: int) -> int:
    """Tokens that a request may cost, roughly: what a key's limit is charged until it is known."""
    return len(body) // 4 + (max_tokens or 0) * answers


def service_tier(given: str | None, key: Key) -> Mapping[str, str]:
    """What to say of the service tier, if one was asked for."""
    if given is None:
        return {}
    return {"service_tier": {1: "priority", 2: "default", 3: "flex"}[bodies.priority_of(given, key.priority)]}
