"""How often clients may connect: in all, by listener, and by address (KIP-612). Pure.

A connection beyond a limit is not counted, as in Kafka: it does not keep later ones from being accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Final

from flintmq.metadata.client_quotas import CONNECTION_CREATION_RATE
from flintmq.metadata.quota_entity import DEFAULT, QuotaEntity
from flintmq.security.quotas.rate import UNLIMITED, QuotaWindows, SampledRate

ADDRESSES_MAX: Final = 10_000
"""Those whose rate is known; the others share one."""
_OTHERS: Final = "others"


class ConnectionRates:
    def __init__(
        self,
        quotas: Callable[[], Mapping[QuotaEntity, Mapping[str, float]]],
        now: Callable[[], float],
        *,
        windows: QuotaWindows = QuotaWindows(),  # noqa: B008 (immutable)
        addresses_max: int = ADDRESSES_MAX,
    ) -> None:
        self._quotas = quotas
        self._now = now
        self._windows = windows
        self._addresses_max = addresses_max
        self._default = UNLIMITED
        self._limits: dict[str, float] = {}
        self._rates: dict[str, SampledRate] = {}
        self._listeners: dict[str, SampledRate] = {}
        self.changed()

    def changed(self) -> None:
        """The quotas have changed."""
        limits: dict[str, float] = {}
        for entity, values in self._quotas().items():
            if entity.ip is not None and CONNECTION_CREATION_RATE in values:
                limits[canonical(entity.ip)] = values[CONNECTION_CREATION_RATE]
        self._default = limits.pop(DEFAULT, UNLIMITED)
        self._limits = limits
        for address, rate in list(self._rates.items()):
            rate.limit = self._limit(address)
            if rate.limit == UNLIMITED:
                del self._rates[address]

    def forget_unused(self) -> None:
        now = self._now()
        for address, rate in list(self._rates.items()):
            if now - rate.used_at() > self._windows.span_s:
                del self._rates[address]

    def delay_ms(self, host: str, listener_limits: Mapping[str, float]) -> int:
        """Return 0 if the connection may be accepted, and count it; else how long the client should wait.

        `listener_limits` are those of the broker (an empty name) and of the listener, if there are any.
        """
        rates = [self._listener_rate(name, limit) for name, limit in listener_limits.items()]
        if self._limits or self._default < UNLIMITED:
            address = canonical(host)
            limit = self._limit(address)
            if limit < UNLIMITED:
                rates.append(self._address_rate(address, limit))
        now, delay_ms = self._now(), 0
        for rate in rates:
            rate.record(1, now)
            delay_ms = max(delay_ms, rate.throttle_ms(now))
        if delay_ms:
            for rate in rates:
                rate.record(-1, now)
        return delay_ms

    def _limit(self, address: str) -> float:
        return self._limits.get(address, self._default)

    def _listener_rate(self, name: str, limit: float) -> SampledRate:
        rate = self._listeners.get(name)
        if rate is None:
            rate = self._listeners[name] = self._create(limit)
        rate.limit = limit
        return rate

    def _address_rate(self, address: str, limit: float) -> SampledRate:
        rate = self._rates.get(address)
        if rate is None and len(self._rates) >= self._addresses_max:
            self.forget_unused()
            if len(self._rates) >= self._addresses_max:
                address = _OTHERS
                rate = self._rates.get(address)
        if rate is None:
            rate = self._rates[address] = self._create(limit)
        rate.limit = limit
        return rate

    def _create(self, limit: float) -> SampledRate:
        samples, size_s = self._windows
        return SampledRate(limit, samples, size_s, self._now(), throttle_s_max=size_s)


def canonical(address: str) -> str:
    """Return one text for all ways to write an address; an IPv4 address that is mapped into IPv6 is IPv4."""
    if not address:
        return address
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(parsed)
