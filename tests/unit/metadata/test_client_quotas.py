"""Client quotas in the store, by Kafka's rules (KIP-546)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import closing

import pytest

from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata.client_quotas import (
    ALTERATIONS_MAX,
    NAME_SIZE_MAX,
    ClientQuotas,
    EntityFilter,
    EntityParts,
    MatchType,
    QuotaAlteration,
)
from flintmq.metadata.quota_entity import DEFAULT, QuotaEntity, entity_key, parse_entity_key
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop
from support.broker.single_broker import SEED, SingleBroker

RATE = "producer_byte_rate"
USER: EntityParts = (("user", "alice"),)
IP: EntityParts = (("ip", "10.0.0.1"),)
NAN, INFINITE = math.nan, math.inf


class Store:
    def __init__(self, broker: SingleBroker) -> None:
        self.broker = broker
        self.quotas: ClientQuotas = broker.services.client_quotas

    def alter(self, *alterations: QuotaAlteration, validate_only: bool = False) -> list[RequestError | None]:
        altered = self.quotas.alter(alterations, validate_only=validate_only)
        return [error for _, error in self.broker.loop.run_until_complete(altered)]

    def refused(self, entity: EntityParts, name: str = RATE, value: float = 1.0) -> str:
        """The message with which a quota is rejected; empty if it is not."""
        (error,) = self.alter(QuotaAlteration(entity, [(name, value)]))
        if error is None:
            return ""
        assert error.code is ErrorCode.INVALID_REQUEST
        return str(error)

    @property
    def all(self) -> dict[QuotaEntity, dict[str, float]]:
        return dict(self.quotas.describe([], strict=False))


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        store = Store(SingleBroker(loop, {}, SimulatedDisk(seed=SEED)))
        yield store
        store.broker.close()


def test_quotas_are_set_changed_and_deleted_one_by_one(store: Store) -> None:
    assert store.alter(QuotaAlteration(USER, [(RATE, 1.0), ("request_percentage", 12.5)])) == [None]
    assert store.alter(QuotaAlteration(USER, [(RATE, 2.0)])) == [None]
    alice = QuotaEntity(user="alice")
    assert store.all == {alice: {RATE: 2.0, "request_percentage": 12.5}}
    assert store.alter(QuotaAlteration(USER, [("request_percentage", None)])) == [None]
    assert store.all == {alice: {RATE: 2.0}}
    assert store.alter(QuotaAlteration(USER, [(RATE, None), ("consumer_byte_rate", None)])) == [None]
    assert store.all == {}


def test_what_does_not_change_is_not_written(store: Store) -> None:
    store.alter(QuotaAlteration(USER, [(RATE, 1.0)]))
    revision = store.broker.services.metadata.image.revision
    assert store.alter(QuotaAlteration(USER, [(RATE, 1.0), ("request_percentage", None)])) == [None]
    assert store.broker.services.metadata.image.revision == revision


def test_validation_alone_changes_nothing(store: Store) -> None:
    assert store.alter(QuotaAlteration(USER, [(RATE, 1.0)]), validate_only=True) == [None]
    (error,) = store.alter(QuotaAlteration(USER, [(RATE, 0.0)]), validate_only=True)
    assert error is not None
    assert store.all == {}


@pytest.mark.parametrize("value", [0.0, -0.0, -1.0, -INFINITE])
def test_a_quota_is_positive(store: Store, value: float) -> None:
    assert store.refused(USER, RATE, value) == f"Quota {RATE} must be greater than 0"
    assert store.refused(IP, "connection_creation_rate", value).endswith("must be greater than 0")


@pytest.mark.parametrize("name", [RATE, "request_percentage"])
def test_a_quota_is_a_number(store: Store, name: str) -> None:
    assert "must be a number" in store.refused(USER, name, NAN)
    assert store.refused(USER, name, INFINITE)


def test_rates_of_bytes_and_connections_are_whole(store: Store) -> None:
    assert store.refused(USER, RATE, 1.5) == f"{RATE} cannot be a fractional value."
    assert store.refused(USER, RATE, 2.0**64) == f"Proposed value for {RATE} is too large for a LONG."
    name = "connection_creation_rate"
    assert store.refused(IP, name, 2.0**31) == f"Proposed value for {name} is too large for an INT."
    assert not store.refused(USER, "request_percentage", 0.5)
    assert not store.refused(USER, "controller_mutation_rate", 0.01)


@pytest.mark.parametrize(
    ("entity", "name"),
    [(USER, "connection_creation_rate"), (IP, RATE), (USER, "unknown"), (USER, ""), (USER, "SCRAM-SHA-256")],
)
def test_a_quota_that_the_entity_cannot_have(store: Store, entity: EntityParts, name: str) -> None:
    assert store.refused(entity, name) == f"Invalid configuration key {name}"


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        ((), "Invalid empty client quota entity"),
        ((("group", "g"),), "Unhandled client quota entity type: group"),
        ((("user", ""),), "Empty user not supported"),
        ((("client-id", ""), ("user", "alice")), "Empty client-id not supported"),
        ((("ip", "10.0.0.1"), ("user", "alice")), "should not be combined"),
        ((("ip", None), ("client-id", None)), "should not be combined"),
        ((("ip", "not-a-host"),), "is not a valid IP address"),
        ((("ip", "10.0.0.256"),), "is not a valid IP address"),
        ((("user", "a" * (NAME_SIZE_MAX + 1)),), "must not be longer"),
    ],
)
def test_an_entity_that_cannot_have_quotas(store: Store, entity: EntityParts, words: str) -> None:
    name = "connection_creation_rate" if "ip" in dict(entity) else RATE
    assert words in store.refused(entity, name)
    assert store.all == {}


def test_one_wrong_quota_of_an_entity_changes_none_of_it_and_others_are_changed(store: Store) -> None:
    wrong = QuotaAlteration(USER, [(RATE, 1.0), ("consumer_byte_rate", 0.0)])
    right = QuotaAlteration((("user", "bob"),), [(RATE, 1.0)])
    results = store.alter(wrong, right)
    assert [error is None for error in results] == [False, True]
    assert list(store.all) == [QuotaEntity(user="bob")]


def test_what_comes_twice_is_not_changed(store: Store) -> None:
    (error,) = store.alter(QuotaAlteration(USER, [(RATE, 1.0), (RATE, 2.0)]))
    assert error is not None
    assert "Duplicate quota key" in str(error)
    one = QuotaAlteration((("user", "bob"), ("client-id", None)), [(RATE, 1.0)])
    other = QuotaAlteration((("client-id", None), ("user", "bob")), [(RATE, 2.0)])
    (error,) = store.alter(one, other)
    assert error is not None
    assert "duplicate entity" in str(error)
    assert store.all == {}


def test_a_request_has_a_bound(store: Store) -> None:
    many = [QuotaAlteration((("user", f"u{at}"),), [(RATE, 1.0)]) for at in range(ALTERATIONS_MAX + 1)]
    with pytest.raises(RequestError):
        store.alter(*many)
    assert store.alter(*many[1:]) == [None] * ALTERATIONS_MAX
    assert len(store.all) == ALTERATIONS_MAX


def test_changes_of_one_entity_at_the_same_time_do_not_undo_each_other(store: Store) -> None:
    names = (RATE, "consumer_byte_rate", "request_percentage", "controller_mutation_rate")

    async def together() -> None:
        changes = [[QuotaAlteration(USER, [(name, 1.0)])] for name in names]
        await asyncio.gather(*(store.quotas.alter(one, validate_only=False) for one in changes))

    store.broker.loop.run_until_complete(together())
    assert store.all == {QuotaEntity(user="alice"): dict.fromkeys(names, 1.0)}


def test_quotas_survive_a_restart() -> None:
    disk = SimulatedDisk(seed=SEED)
    entity: EntityParts = (("client-id", None), ("user", "a/b & c=ü"))
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        store = Store(SingleBroker(loop, {}, disk))
        assert store.alter(QuotaAlteration(entity, [(RATE, 7.0)])) == [None]
        store.broker.close()
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        store = Store(SingleBroker(loop, {}, disk))
        assert store.all == {QuotaEntity("a/b & c=ü", DEFAULT): {RATE: 7.0}}
        store.broker.close()


@pytest.mark.parametrize("name", [DEFAULT, "a", "a=b&c", "%41", "/", "ü 😀", "\n"])
def test_every_entity_has_a_key_of_its_own(name: str) -> None:
    for entity in (QuotaEntity(name), QuotaEntity(None, name), QuotaEntity(name, name), QuotaEntity(ip=name)):
        assert parse_entity_key(entity_key(entity)) == entity


# ---- filters


FILTERED = (
    QuotaEntity("alice"),
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(None, "app"),
    QuotaEntity(ip="10.0.0.1"),
)
EXACT, ANY = MatchType.EXACT, MatchType.SPECIFIED


@pytest.mark.parametrize(
    ("filters", "strict", "found"),
    [
        ([], False, {0, 1, 2, 3, 4, 5}),
        ([], True, set()),
        ([EntityFilter("user", EXACT, "alice")], False, {0, 1, 2}),
        ([EntityFilter("user", EXACT, "alice")], True, {0}),
        ([EntityFilter("user", EXACT, "")], False, set()),
        ([EntityFilter("user", MatchType.DEFAULT, None)], False, {3}),
        ([EntityFilter("user", ANY, None)], False, {0, 1, 2, 3}),
        ([EntityFilter("user", ANY, None), EntityFilter("client-id", ANY, None)], True, {1, 2}),
        ([EntityFilter("user", ANY, None), EntityFilter("client-id", EXACT, "app")], True, {1}),
        ([EntityFilter("client-id", EXACT, "app")], False, {1, 4}),
        ([EntityFilter("ip", ANY, None)], False, {5}),
    ],
)
def test_filters(store: Store, filters: list[EntityFilter], strict: bool, found: set[int]) -> None:
    for entity in FILTERED:
        name = RATE if entity.ip is None else "connection_creation_rate"
        parts = tuple((kind, text or None) for kind, text in entity.parts)
        assert not store.refused(parts, name)
    described = [entity for entity, _ in store.quotas.describe(filters, strict=strict)]
    assert set(described) == {FILTERED[at] for at in found}


@pytest.mark.parametrize(
    ("filters", "code"),
    [
        ([EntityFilter("", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([EntityFilter("group", EXACT, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([EntityFilter("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([EntityFilter("user", MatchType.DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([EntityFilter("user", ANY, "a")], ErrorCode.INVALID_REQUEST),
        ([EntityFilter("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([EntityFilter("user", ANY, None), EntityFilter("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([EntityFilter("user", ANY, None), EntityFilter("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_are_rejected(store: Store, filters: list[EntityFilter], code: ErrorCode) -> None:
    with pytest.raises(RequestError) as raised:
        store.quotas.describe(filters, strict=False)
    assert raised.value.code is code
