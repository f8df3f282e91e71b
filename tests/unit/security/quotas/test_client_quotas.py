"""Which quota holds for a client, and whose rate it shares."""

from __future__ import annotations

import itertools

import pytest

from flintmq.metadata.quota_entity import DEFAULT, QuotaEntity
from flintmq.security.quotas.client_quotas import LimitedClients, match
from flintmq.security.quotas.rate import SampledRate

RATE = "producer_byte_rate"
PRECEDENCE: list[tuple[str | None, str | None]] = [
    ("alice", "app"),
    ("alice", DEFAULT),
    ("alice", None),
    (DEFAULT, "app"),
    (DEFAULT, DEFAULT),
    (DEFAULT, None),
    (None, "app"),
    (None, DEFAULT),
]
SHARED_BY = [
    ("alice", "app"),
    ("alice", "app"),
    ("alice", ""),
    ("alice", "app"),
    ("alice", "app"),
    ("alice", ""),
    ("", "app"),
    ("", "app"),
]


class Quotas:
    """Quotas in a test's hand, and its clock."""

    def __init__(self, *, rates_max: int = 100) -> None:
        self.set: dict[QuotaEntity, dict[str, float]] = {}
        self.time = 1000.0
        self.clients = LimitedClients(lambda: self.set, lambda: self.time, rates_max=rates_max)

    def put(self, user: str | None, client_id: str | None, limit: float | None, kind: str = RATE) -> None:
        entity = QuotaEntity(user, client_id)
        if limit is None:
            del self.set[entity]
        else:
            self.set.setdefault(entity, {})[kind] = limit
        self.clients.changed()

    def rate(self, user: str, client_id: str) -> SampledRate | None:
        limits = self.clients.find(user, client_id)
        return None if limits is None else limits.produce


@pytest.mark.parametrize("subset", range(1, 1 << len(PRECEDENCE)))
def test_the_most_specific_quota_holds(subset: int) -> None:
    """Every combination of the eight, as Kafka's `ClientQuotaManager` orders them."""
    present = [at for at in range(len(PRECEDENCE)) if subset >> at & 1]
    limits = {PRECEDENCE[at]: float(at + 1) for at in present}
    first = present[0]
    assert match(limits, "alice", "app") == (first + 1, *SHARED_BY[first])


def test_a_client_without_an_id_has_quotas_of_users_only() -> None:
    everything = {entity: float(at) for at, entity in enumerate(PRECEDENCE)}
    assert match(everything, "alice", "") == (2.0, "alice", "")
    assert match({(None, DEFAULT): 1.0, ("alice", DEFAULT): 2.0}, "alice", "") is None


def test_without_quotas_nothing_is_looked_up() -> None:
    quotas = Quotas()
    assert not quotas.clients.is_active
    quotas.set[QuotaEntity(ip="10.0.0.1")] = {"connection_creation_rate": 1.0}
    quotas.clients.changed()
    assert not quotas.clients.is_active
    quotas.put("alice", None, 1.0)
    assert quotas.clients.is_active
    assert quotas.rate("bob", "app") is None


def test_rates_are_shared_by_the_entity_of_the_quota() -> None:
    quotas = Quotas()
    quotas.put("alice", None, 1.0)
    quotas.put(DEFAULT, None, 2.0)
    assert quotas.rate("alice", "one") is quotas.rate("alice", "two")
    assert quotas.rate("bob", "one") is quotas.rate("bob", "two")
    assert quotas.rate("bob", "one") is not quotas.rate("carol", "one")
    quotas.put("alice", DEFAULT, 3.0)
    assert quotas.rate("alice", "one") is not quotas.rate("alice", "two")


def test_each_kind_of_quota_has_a_precedence_of_its_own() -> None:
    quotas = Quotas()
    quotas.put("alice", None, 1.0)
    quotas.put(None, "app", 2.0, "request_percentage")
    quotas.put(None, "app", 3.0, "controller_mutation_rate")
    limits = quotas.clients.find("alice", "app")
    assert limits is not None
    assert limits.produce is not None
    assert limits.request is not None
    assert limits.mutations is not None
    assert limits.fetch is None
    assert (limits.produce.limit, limits.request.limit, limits.mutations.limit) == (1.0, 2.0, 3.0)


def test_a_change_reaches_the_rates_in_use_and_keeps_what_they_recorded() -> None:
    quotas = Quotas()
    quotas.put("alice", None, 10.0)
    rate = quotas.rate("alice", "app")
    assert rate is not None
    rate.record(1000, quotas.time)
    assert rate.throttle_ms(quotas.time) > 0
    epoch = quotas.clients.epoch
    quotas.put("alice", None, 1000.0)
    assert quotas.clients.epoch > epoch
    assert quotas.rate("alice", "app") is rate
    assert rate.throttle_ms(quotas.time) == 0


def test_a_deleted_quota_limits_nothing_any_more_even_for_requests_in_progress() -> None:
    quotas = Quotas()
    quotas.put(None, DEFAULT, 1.0)
    rate = quotas.rate("alice", "app")
    assert rate is not None
    rate.record(1_000_000, quotas.time)
    quotas.put(None, DEFAULT, None)
    assert rate.throttle_ms(quotas.time) == 0
    assert quotas.rate("alice", "app") is None
    assert len(quotas.clients) == 0


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(PRECEDENCE, 2)))
def test_quotas_that_replace_each_other_leave_the_right_limit(
    one: tuple[str | None, str | None], other: tuple[str | None, str | None]
) -> None:
    quotas = Quotas()
    quotas.put(*one, 1.0)
    quotas.rate("alice", "app")
    quotas.put(*other, 2.0)
    winner = min(one, other, key=PRECEDENCE.index)
    rate = quotas.rate("alice", "app")
    assert rate is not None
    assert rate.limit == (1.0 if winner == one else 2.0)
    quotas.put(*winner, None)
    rate = quotas.rate("alice", "app")
    assert rate is not None
    assert rate.limit == (2.0 if winner == one else 1.0)


def test_rates_are_forgotten_when_they_are_as_good_as_new() -> None:
    quotas = Quotas()
    quotas.put(None, DEFAULT, 1.0)
    quotas.rate("alice", "app")
    epoch = quotas.clients.epoch
    quotas.time += 11
    quotas.clients.forget_unused()
    assert (len(quotas.clients), quotas.clients.epoch) == (1, epoch)
    quotas.time += 0.1
    quotas.clients.forget_unused()
    assert len(quotas.clients) == 0
    assert quotas.clients.epoch > epoch


def test_client_ids_without_number_share_a_rate() -> None:
    quotas = Quotas(rates_max=10)
    quotas.put(None, DEFAULT, 1.0)
    rates = {id(quotas.rate("alice", f"app-{at}")) for at in range(1000)}
    assert len(rates) == 11
    assert len(quotas.clients) == 11
    shared = quotas.rate("alice", "app-999")
    assert shared is quotas.rate("bob", "app-998")
    assert shared is not None
    assert shared.limit == 1.0


def test_long_client_ids_are_not_kept() -> None:
    quotas = Quotas()
    quotas.put(None, DEFAULT, 10)
    long, other = "i" * 32_000, "j" * 32_000
    assert quotas.rate("alice", long) is quotas.rate("bob", long)
    assert quotas.rate("alice", long) is not quotas.rate("alice", other)
    assert all(len(part) < 300 for key in quotas.clients._rates for part in key)
    quotas.put(None, long, 5)
    rate = quotas.rate("alice", long)
    assert rate is not None
    assert rate.limit == 5
