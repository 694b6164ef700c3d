"""How much a key may still ask: buckets that fill up evenly over a minute, answers at a time, a month's budget.

Tokens are taken in advance, as many as a request may cost, and given back as far as it did not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.failures import LimitReached
from gateway.keys import Key
from gateway.ledger import Spent

MINUTE = 60.0


@dataclass
class Bucket:
    """Holds a minute's worth at most; `level` may fall below 0 where an answer was longer than was reckoned."""

    limit: int
    level: float
    at: float

    def fill(self, now: float) -> None:
        self.level = min(self.limit, self.level + (now - self.at) * self.limit / MINUTE)
        self.at = now

    def seconds_until(self, amount: float) -> float:
        return max(0.0, (amount - self.level) * MINUTE / self.limit)


@dataclass
class Account:
    """What a key has used. Its limits are those of the file as it is now."""

    requests: Bucket | None = None
    tokens: Bucket | None = None
    running: int = 0
    spent: Spent = field(default_factory=Spent)


class Admission:
    """A request that was let in. `settle` must be called once, when it has ended."""

    def __init__(self, account: Account, weight: int, reserved: int) -> None:
        self._account = account
        self._weight = weight
        self._reserved = reserved
        account.running += weight

    def settle(self, tokens: int) -> None:
        """It cost so many tokens."""
        self._account.running -= self._weight
        if self._account.tokens is not None:
            self._account.tokens.level += self._reserved - tokens


class Limits:
    """The accounts of all keys. `clock` is in seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._accounts: dict[str, Account] = {}

    def spent(self, name: str) -> Spent:
        """What the key of that name has used this month."""
        return self._accounts.setdefault(name, Account()).spent

    def account(self, key: Key) -> Account:
        account = self._accounts.setdefault(key.name, Account())
        account.requests = self._bucket(account.requests, key.rpm)
        account.tokens = self._bucket(account.tokens, key.tpm)
        return account

    def admit(self, key: Key, weight: int, tokens: int) -> Admission:
        """Lets `weight` answers in that may cost `tokens` together. Raises LimitReached."""
        account = self.account(key)
        _check_budget(key, account.spent)
        if key.concurrency and account.running + weight > key.concurrency:
            raise LimitReached(f"the key may have {key.concurrency} answers at a time", 1.0)
        if key.rpm:
            _check(account.requests, weight, f"the key may ask {key.rpm} requests a minute")
        if key.tpm:
            _check(account.tokens, max(tokens, 1), f"the key may use {key.tpm} tokens a minute")
        if account.requests is not None:
            account.requests.level -= weight
        if account.tokens is not None:
            account.tokens.level -= tokens
        return Admission(account, weight, tokens)

    def headers(self, key: Key) -> list[tuple[bytes, bytes]]:
        """What is left, as OpenAI says it."""
        account = self.account(key)
        found = []
        for name, bucket in ((b"requests", account.requests), (b"tokens", account.tokens)):
            if bucket is not None:
                full = bucket.seconds_until(bucket.limit)
                found += [
                    (b"x-ratelimit-limit-" + name, b"%d" % bucket.limit),
                    (b"x-ratelimit-remaining-" + name, b"%d" % max(0, int(bucket.level))),
                    (b"x-ratelimit-reset-" + name, b"%dms" % round(full * 1000)),
                ]
        return found

    def _bucket(self, bucket: Bucket | None, limit: int) -> Bucket | None:
        """The same, filled up to now; full where there was none."""
        now = self._clock()
        if not limit:
            return None
        if bucket is None:
            return Bucket(limit, limit, now)
        bucket.limit = limit
        bucket.fill(now)
        return bucket


def _check(bucket: Bucket | None, amount: int, limit: str) -> None:
    if bucket is None or bucket.level >= amount:
        return
    if amount > bucket.limit:
        raise LimitReached(f"{limit}, and this request alone may need {amount}", None)
    raise LimitReached(limit, bucket.seconds_until(amount))


def _check_budget(key: Key, spent: Spent) -> None:
    if key.monthly_tokens and spent.tokens >= key.monthly_tokens:
        what = f"{key.monthly_tokens} tokens"
    elif key.monthly_cost and spent.cost >= key.monthly_cost:
        what = f"costs of {key.monthly_cost:g}"
    else:
        return
    raise LimitReached(f"the key's budget of {what} for this month is used up", None, "insufficient_quota")
