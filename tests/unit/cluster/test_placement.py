"""Replicas are spread over brokers and racks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.cluster.placement import BrokerSite, place_hashed, place_striped
from flintmq.errors import ErrorCode, RequestError

Place = Callable[[Sequence[BrokerSite], int, int, int], list[list[int]]]


def striped(brokers: Sequence[BrokerSite], count: int, factor: int, seed: int) -> list[list[int]]:
    return place_striped(brokers, count=count, factor=factor, seed=seed)


def hashed(brokers: Sequence[BrokerSite], count: int, factor: int, seed: int) -> list[list[int]]:
    return place_hashed(brokers, topic=f"t{seed}", first=seed, count=count, factor=factor)


BOTH = pytest.mark.parametrize("place", [striped, hashed])


def brokers(count: int, racks: int = 0) -> list[BrokerSite]:
    return [BrokerSite(node, f"r{node % racks}" if racks else None) for node in range(count)]


@BOTH
@given(st.integers(1, 9), st.integers(0, 4), st.integers(1, 9), st.integers(1, 40), st.integers(0, 1000))
def test_replicas_are_distinct_and_on_as_many_racks_as_there_can_be(
    place: Place, broker_count: int, racks: int, factor: int, count: int, seed: int
) -> None:
    factor = min(factor, broker_count)
    sites = brokers(broker_count, racks)
    rack_of = {site.id: site.rack for site in sites}
    placed = place(sites, count, factor, seed)
    assert len(placed) == count
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert len({rack_of[node] for node in replicas}) == min(factor, len(set(rack_of.values())))


@BOTH
def test_the_first_partitions_of_topics_are_not_all_on_one_broker(place: Place) -> None:
    firsts = Counter(place(brokers(3), 1, 1, seed)[0][0] for seed in range(90))
    assert all(firsts[node] >= 10 for node in range(3)), firsts


def test_every_broker_leads_as_many_partitions_and_has_as_many_replicas() -> None:
    for seed in range(20):
        placed = striped(brokers(6, racks=3), 60, 3, seed)
        leaders = Counter(replicas[0] for replicas in placed)
        replicas = Counter(node for one in placed for node in one)
        assert set(leaders.values()) == {10}, (seed, leaders)
        assert set(replicas.values()) == {30}, (seed, replicas)


@BOTH
def test_a_broker_that_cannot_lead_gets_replicas_and_never_the_first(place: Place) -> None:
    sites = [BrokerSite(0), BrokerSite(1), BrokerSite(2, can_lead=False)]
    placed = place(sites, 20, 3, 7)
    assert all(replicas[0] != 2 for replicas in placed)
    assert all(2 in replicas for replicas in placed)


def test_a_hashed_placement_moves_only_what_a_new_broker_takes_part_in() -> None:
    before, after = hashed(brokers(5), 50, 2, 0), hashed(brokers(6), 50, 2, 0)
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert moved
    assert all(5 in new for _, new in moved)


@BOTH
@pytest.mark.parametrize(
    ("sites", "factor", "reason"),
    [
        (brokers(3), 0, "must be positive"),
        (brokers(3), -1, "must be positive"),
        (brokers(3), 4, "only 3 broker"),
        ([BrokerSite(0, can_lead=False)], 1, "can lead"),
        ([], 1, "can lead"),
    ],
)
def test_factors_that_cannot_be_reached_are_refused(
    place: Place, sites: list[BrokerSite], factor: int, reason: str
) -> None:
    with pytest.raises(RequestError, match=reason) as refused:
        place(sites, 1, factor, 0)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
