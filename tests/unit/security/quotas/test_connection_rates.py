"""How often addresses may connect (KIP-612)."""

from __future__ import annotations

from flintmq.metadata.quota_entity import DEFAULT, QuotaEntity
from flintmq.security.quotas.connection_rates import ConnectionRates, canonical


class Quotas:
    def __init__(self, addresses_max: int = 100) -> None:
        self.set: dict[QuotaEntity, dict[str, float]] = {}
        self.time = 1000.0
        self.rates = ConnectionRates(lambda: self.set, lambda: self.time, addresses_max=addresses_max)

    def put(self, ip: str, limit: float | None) -> None:
        if limit is None:
            del self.set[QuotaEntity(ip=ip)]
        else:
            self.set[QuotaEntity(ip=ip)] = {"connection_creation_rate": limit}
        self.rates.changed()

    def accepted(self, host: str, attempts: int, limits: dict[str, float] | None = None) -> int:
        return sum(self.rates.delay_ms(host, limits or {}) == 0 for _ in range(attempts))


def test_without_a_quota_every_connection_is_accepted() -> None:
    quotas = Quotas()
    quotas.put("10.0.0.1", 1.0)
    assert quotas.accepted("10.0.0.2", 1000) == 1000


def test_beyond_its_quota_an_address_waits_for_a_window_at_most() -> None:
    quotas = Quotas()
    quotas.put("10.0.0.1", 2.0)
    assert quotas.accepted("10.0.0.1", 100) == 20
    assert 0 < quotas.rates.delay_ms("10.0.0.1", {}) <= 1000
    quotas.time += 0.5
    assert quotas.accepted("10.0.0.1", 100) == 1


def test_an_address_before_the_default() -> None:
    quotas = Quotas()
    quotas.put(DEFAULT, 1.0)
    quotas.put("10.0.0.1", 3.0)
    assert quotas.accepted("10.0.0.1", 100) == 30
    assert quotas.accepted("10.0.0.2", 100) == 10
    assert quotas.accepted("10.0.0.3", 100) == 10
    quotas.put("10.0.0.1", None)
    assert quotas.accepted("10.0.0.1", 100) == 0


def test_an_address_is_the_same_however_it_is_written() -> None:
    assert canonical("::ffff:10.0.0.1") == canonical("10.0.0.1") == "10.0.0.1"
    assert canonical("0:0:0:0:0:0:0:1") == canonical("::1") == "::1"
    assert canonical("not an address") == "not an address"
    quotas = Quotas()
    quotas.put("0:0:0:0:0:0:0:1", 1.0)
    assert quotas.accepted("::1", 100) == 10


def test_the_broker_and_a_listener_have_limits_as_well() -> None:
    quotas = Quotas()
    assert quotas.accepted("10.0.0.1", 100, {"": 5.0, "EXTERNAL": 2.0}) == 20
    assert quotas.accepted("10.0.0.2", 100, {"": 5.0}) == 30


def test_a_connection_that_is_turned_away_counts_for_nobody() -> None:
    quotas = Quotas()
    quotas.put("10.0.0.1", 1.0)
    assert quotas.accepted("10.0.0.1", 1000, {"": 5.0}) == 10
    assert quotas.accepted("10.0.0.2", 1000, {"": 5.0}) == 40


def test_addresses_without_number_share_a_rate() -> None:
    quotas = Quotas(addresses_max=10)
    quotas.put(DEFAULT, 1.0)
    assert sum(quotas.accepted(f"10.0.{at // 250}.{at % 250}", 1) for at in range(1000)) == 20
    quotas.time += 20
    quotas.rates.forget_unused()
    assert quotas.accepted("10.9.9.9", 100) == 10
