"""How much a key may still ask: buckets that fill up evenly over a minute, answers at a time, a month's budget.

Tokens are taken in advance, as many as a request may cost, and given back as far as it did not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.accounts import Account, Accounts, Bucket, OwnAccounts
from gateway.failures import LimitReached
from gateway.keys import Key
from gateway.ledger import Spent


class Admission:
    """A request that was let in. `settle` must be called once, when it has ended."""

    def __init__(self, accounts: Accounts, name: str, weight: int, reserved: int) -> None:
        self._accounts = accounts
        self._name = name
        self._weight = weight
        self._reserved = reserved

    def settle(self, tokens: int) -> None:
        """It cost so many tokens."""
        with self._accounts.of(self._name) as account:
            account.running -= self._weight
            if account.tokens is not None:
                account.tokens.level += self._reserved - tokens


class Limits:
    """Of all keys. `clock` is in seconds, never goes back, and is the same in all processes that share the accounts."""

    def __init__(self, accounts: Accounts | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._accounts = accounts or OwnAccounts()
        self._clock = clock

    def spend(self, name: str, tokens: int, cost: float) -> None:
        """The key of that name has used so much of this month's budget."""
        with self._accounts.of(name) as account:
            account.spent.add(tokens, cost)

    @contextmanager
    def account(self, key: Key) -> Iterator[Account]:
        """The key's, filled up to now, with the limits of the file as it is now."""
        with self._accounts.of(key.name) as account:
            account.requests = self._bucket(account.requests, key.rpm)
            account.tokens = self._bucket(account.tokens, key.tpm)
            yield account

    def admit(self, key: Key, weight: int, tokens: int) -> Admission:
        """Lets `weight` answers in that may cost `tokens` together. Raises LimitReached."""
        with self.account(key) as account:
            _check_budget(key, account.spent)
            if key.concurrency and account.running + account.elsewhere + weight > key.concurrency:
                raise LimitReached(f"the key may have {key.concurrency} answers at a time", 1.0)
            if key.rpm:
                _check(account.requests, weight, f"the key may ask {key.rpm} requests a minute")
            if key.tpm:
                _check(account.tokens, max(tokens, 1), f"the key may use {key.tpm} tokens a minute")
            if account.requests is not None:
                account.requests.level -= weight
            if account.tokens is not None:
                account.tokens.level -= tokens
            account.running += weight
        return Admission(self._accounts, key.name, weight, tokens)

    def headers(self, key: Key) -> list[tuple[bytes, bytes]]:
        """What is left, as OpenAI says it."""
        if not (key.rpm or key.tpm):
            return []
        found = []
        with self.account(key) as account:
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
