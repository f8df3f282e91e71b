"""The quotas of users and client ids: which limits hold for a client, and the rates that they limit. Pure.

Of the quotas that match a client the most specific one holds, for each kind on its own:

    (user, client id), (user, default client id), (user), (default user, client id),
    (default user, default client id), (default user), (client id), (default client id)

A rate is shared by all connections that the same quota holds for: of one user and client id where the entity has
both, of a user with any client id, or of a client id with any user.

The limits of a client are needed for every request, and are kept with its connection as `ClientLimits`, which hold
while `epoch` stays the same. Rates are forgotten when they are as good as new. Their number is bounded, since clients
choose their ids: those beyond the bound share one rate for each limit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from flintmq.metadata.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from flintmq.metadata.quota_entity import DEFAULT, QuotaEntity
from flintmq.metrics import QuotaCounters
from flintmq.security.quotas.rate import UNLIMITED, QuotaWindows, SampledRate, TokenBucket

RATES_MAX: Final = 20_000
SLOW_BYTES_PER_S: Final = 4 * 1024 * 1024
_KINDS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
_OVERFLOW: Final = "\0"
CLIENT_ID_SIZE_MAX: Final = 256
"""Of a longer client id its digest is kept: a client may send one of 32 KB with each request."""

RateKey = tuple[str, str, str]
"""The kind of quota, the user and the client id that share the rate; empty if all of them do."""


class ClientLimits:
    """What limits one client; None for what nothing limits."""

    __slots__ = ("counters", "fetch", "is_slow", "mutations", "produce", "request")

    def __init__(
        self,
        counters: QuotaCounters,
        produce: SampledRate | None,
        fetch: SampledRate | None,
        request: SampledRate | None,
        mutations: TokenBucket | None,
    ) -> None:
        self.counters = counters
        self.produce = produce
        self.fetch = fetch
        self.request = request
        """Percent of the event loop's time."""
        self.mutations = mutations
        """Partitions created and deleted."""
        self.is_slow = produce is not None and produce.limit < SLOW_BYTES_PER_S
        """Whether little should be read from the client at a time: what was read is handled."""


class LimitedClients:
    def __init__(
        self,
        quotas: Callable[[], Mapping[QuotaEntity, Mapping[str, float]]],
        now: Callable[[], float],
        *,
        windows: QuotaWindows = QuotaWindows(),  # noqa: B008 (immutable)
        mutation_windows: QuotaWindows = QuotaWindows(),  # noqa: B008 (immutable)
        counters: QuotaCounters | None = None,
        rates_max: int = RATES_MAX,
    ) -> None:
        self._quotas = quotas
        self._now = now
        self._windows = windows
        self._mutation_windows = mutation_windows
        self._counters = counters or QuotaCounters()
        self._rates_max = rates_max
        self._limits: dict[str, dict[tuple[str | None, str | None], float]] = {}
        self._rates: dict[RateKey, SampledRate | TokenBucket] = {}
        self.is_active = False
        """Whether any client has a quota; if not, no client need be looked up."""
        self.epoch = 0
        self.changed()

    def __len__(self) -> int:
        return len(self._rates)

    def changed(self) -> None:
        """The quotas have changed: bring the limits up to date, in the rates that are in use as well."""
        limits: dict[str, dict[tuple[str | None, str | None], float]] = {}
        for entity, values in self._quotas().items():
            if entity.ip is None:
                for kind, value in values.items():
                    if kind in _KINDS:
                        client_id = None if entity.client_id is None else _bounded(entity.client_id)
                        limits.setdefault(kind, {})[entity.user, client_id] = value
        self._limits = limits
        self.is_active = bool(limits)
        self.epoch += 1
        for key, rate in list(self._rates.items()):
            kind, user, client_id = key
            limit = None if _OVERFLOW in key else self._limit_of_rate(kind, user, client_id)
            # A request in progress may still hold the rate.
            rate.limit = UNLIMITED if limit is None else limit
            if limit is None:
                del self._rates[key]

    def forget_unused(self) -> None:
        """Forget the rates that are as good as new. Called now and then."""
        now = self._now()
        spans = {True: self._windows.span_s, False: self._mutation_windows.span_s}
        unused = [
            key
            for key, rate in self._rates.items()
            if now - rate.used_at() > spans[isinstance(rate, SampledRate)]
        ]
        for key in unused:
            del self._rates[key]
        if unused:
            # ORDER: connections that hold one of them look again, so that no two rates count the same client.
            self.epoch += 1

    def find(self, user: str, client_id: str) -> ClientLimits | None:
        """Return what limits this client; None if nothing does. `client_id` is empty for a client without one."""
        client_id = _bounded(client_id)
        produce = self._sampled(PRODUCER_BYTE_RATE, user, client_id)
        fetch = self._sampled(CONSUMER_BYTE_RATE, user, client_id)
        request = self._sampled(REQUEST_PERCENTAGE, user, client_id)
        mutations = self._rate(CONTROLLER_MUTATION_RATE, user, client_id)
        if produce is None and fetch is None and request is None and mutations is None:
            return None
        assert mutations is None or isinstance(mutations, TokenBucket)
        return ClientLimits(self._counters, produce, fetch, request, mutations)

    def _sampled(self, kind: str, user: str, client_id: str) -> SampledRate | None:
        rate = self._rate(kind, user, client_id)
        assert rate is None or isinstance(rate, SampledRate)
        return rate

    def _rate(self, kind: str, user: str, client_id: str) -> SampledRate | TokenBucket | None:
        limits = self._limits.get(kind)
        if not limits:
            return None
        found = match(limits, user, client_id)
        if found is None:
            return None
        limit, rate_user, rate_client_id = found
        key = (kind, rate_user, rate_client_id)
        rate = self._rates.get(key)
        if rate is None and len(self._rates) >= self._rates_max:
            key = (kind, _OVERFLOW, str(limit))
            rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = self._create(kind, limit)
        return rate

    def _create(self, kind: str, limit: float) -> SampledRate | TokenBucket:
        now = self._now()
        if kind == CONTROLLER_MUTATION_RATE:
            samples, size_s = self._mutation_windows
            return TokenBucket(limit, samples, size_s, now)
        samples, size_s = self._windows
        # As in Kafka: time of the loop is given back after a window at the latest.
        throttle_s_max = size_s if kind == REQUEST_PERCENTAGE else UNLIMITED
        return SampledRate(limit, samples, size_s, now, throttle_s_max)

    def _limit_of_rate(self, kind: str, user: str, client_id: str) -> float | None:
        """Return the limit that the rate has now; None if no quota uses that rate any more."""
        limits = self._limits.get(kind, {})
        users = (user, DEFAULT) if user else (None,)
        client_ids = (client_id, DEFAULT) if client_id else (None,)
        candidates = ((of_user, of_client_id) for of_user in users for of_client_id in client_ids)
        return next((limits[one] for one in candidates if one in limits), None)


def _bounded(client_id: str) -> str:
    if len(client_id) <= CLIENT_ID_SIZE_MAX:
        return client_id
    return f"sha256:{hashlib.sha256(client_id.encode('utf-8', 'surrogatepass')).hexdigest()}"


def match(
    limits: Mapping[tuple[str | None, str | None], float], user: str, client_id: str
) -> tuple[float, str, str] | None:
    """Return the limit that holds, with the user and the client id that its rate is for.

    As in Kafka, a client without an id is matched by quotas of users only.
    """
    if client_id:
        candidates: tuple[tuple[str | None, str | None], ...] = (
            (user, client_id),
            (user, DEFAULT),
            (user, None),
            (DEFAULT, client_id),
            (DEFAULT, DEFAULT),
            (DEFAULT, None),
            (None, client_id),
            (None, DEFAULT),
        )
    else:
        candidates = ((user, None), (DEFAULT, None))
    for candidate in candidates:
        limit = limits.get(candidate)
        if limit is not None:
            of_user, of_client_id = candidate
            return limit, user if of_user is not None else "", client_id if of_client_id is not None else ""
    return None
