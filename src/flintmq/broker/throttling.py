"""Quotas at work: what a request costs is recorded, and a client that goes too fast waits (KIP-219).

The response is sent at once and says how long the client should wait; meanwhile nothing more is read from its
connection. Of several quotas that are exceeded the longest time holds. Requests without quotas do not come here.
"""

from __future__ import annotations

from typing import Final

from flintmq.broker.request import ClientSession, Request
from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from flintmq.security.quotas.client_quotas import ClientLimits, LimitedClients

_PERCENT: Final = 100.0


def limits_of(session: ClientSession, client_id: str | None, clients: LimitedClients) -> ClientLimits | None:
    """Return the quotas of a client. They are kept with the connection, which mostly has one client id only."""
    principal = session.principal
    if (
        session.limits_epoch != clients.epoch
        or session.limits_client_id != client_id
        or session.limits_principal is not principal
    ):
        session.limits = clients.find(principal.name, client_id or "")
        session.limits_client_id = client_id
        session.limits_principal = principal
        session.limits_epoch = clients.epoch
    return session.limits


def forget_limits(session: ClientSession) -> None:
    """Quotas do not count for this request; the next one that they count for looks again."""
    session.limits = None
    session.limits_epoch = -1


# ---- time on the loop


def charge_time(request: Request, limits: ClientLimits) -> None:
    """Count the time on the loop since the last time; the next response says whether it was too much."""
    if limits.request is not None:
        now = request.counters.now()
        limits.request.record((now - request.charged_until) * _PERCENT, now)
        request.charged_until = now


def _request_delay_ms(request: Request, limits: ClientLimits, now: float) -> int:
    rate = limits.request
    if rate is None:
        return 0
    # A request that waited was charged when it began to wait.
    if request.frame is not None:
        rate.record((now - request.charged_until) * _PERCENT, now)
    request.charged_until = now
    return rate.throttle_ms(now)


def _mutations_delay_ms(request: Request, now: float) -> int:
    return round((request.throttled_until - now) * 1000) if request.throttled_until else 0


# ---- responses


def throttle(request: Request, limits: ClientLimits) -> int:
    """Return for how many milliseconds the client has to wait, and stop reading from it for that long."""
    now = request.counters.now()
    delay_ms = _request_delay_ms(request, limits, now)
    mutations_ms = _mutations_delay_ms(request, now)
    if mutations_ms > delay_ms:
        return _wait(request, limits, CONTROLLER_MUTATION_RATE, mutations_ms)
    return _wait(request, limits, REQUEST_PERCENTAGE, delay_ms)


def throttle_produce(request: Request, limits: ClientLimits, *, has_response: bool) -> int:
    """The same for Produce, which counts the bytes of the request. Without acks only these are limited."""
    now = request.counters.now()
    bytes_ms = 0
    if limits.produce is not None:
        limits.produce.record(request.size, now)
        bytes_ms = limits.produce.throttle_ms(now)
    delay_ms = _request_delay_ms(request, limits, now) if has_response else 0
    mutations_ms = _mutations_delay_ms(request, now)
    if mutations_ms > max(bytes_ms, delay_ms):
        return _wait(request, limits, CONTROLLER_MUTATION_RATE, mutations_ms)
    if bytes_ms > delay_ms:
        return _wait(request, limits, PRODUCER_BYTE_RATE, bytes_ms)
    return _wait(request, limits, REQUEST_PERCENTAGE, delay_ms)


def throttle_fetch(request: Request, limits: ClientLimits, size: int) -> int:
    """The same for Fetch, which counts the bytes of its response. If the client has to wait, it gets no records."""
    now = request.counters.now()
    bytes_ms = 0
    rate = limits.fetch
    if rate is not None:
        rate.record(size, now)
        bytes_ms = rate.throttle_ms(now)
        if bytes_ms and size > rate.window_limit() and rate.total <= size:
            # One batch, larger than all windows permit: without this it could never be read.
            bytes_ms = 0
    delay_ms = _request_delay_ms(request, limits, now)
    if rate is not None and (bytes_ms or delay_ms):
        rate.record(-size, now)
    if bytes_ms > delay_ms:
        return _wait(request, limits, CONSUMER_BYTE_RATE, bytes_ms)
    return _wait(request, limits, REQUEST_PERCENTAGE, delay_ms)


def _wait(request: Request, limits: ClientLimits, quota: str, delay_ms: int) -> int:
    if delay_ms <= 0:
        return 0
    limits.counters.add(quota, delay_ms)
    request.connection.throttle(delay_ms / 1000)
    return delay_ms


# ---- mutations of topics

NEVER_REJECTED: Final = 1 << 15
"""In place of the first version of an API that is rejected beyond the quota."""


class MutationQuota:
    """Partitions that one request creates or deletes (KIP-599).

    From a version on that knows THROTTLING_QUOTA_EXCEEDED, what comes after the quota is used up is rejected; before,
    everything is done and the client has to wait.
    """

    __slots__ = ("_is_strict", "_request")

    def __init__(self, request: Request, strict_from: int) -> None:
        self._request = request
        self._is_strict = request.version >= strict_from

    @property
    def is_limited(self) -> bool:
        return self._request.limits is not None and self._request.limits.mutations is not None

    def record(self, partitions: int) -> None:
        """Count partitions; raise RequestError if the quota was used up before."""
        request = self._request
        bucket = request.limits.mutations if request.limits is not None else None
        if bucket is None:
            return
        now = request.counters.now()
        if self._is_strict and (delay_ms := bucket.throttle_ms(now)):
            request.throttled_until = now + delay_ms / 1000
            raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        bucket.take(partitions, now)
        if not self._is_strict and (delay_ms := bucket.throttle_ms(now)):
            request.throttled_until = now + delay_ms / 1000
