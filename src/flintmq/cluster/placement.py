"""Which brokers hold the replicas of new partitions. Pure.

*Striped*, as Kafka's own placement: racks take turns, and so do the brokers within each, so that replicas of one
partition are on different racks where that is possible, and every broker leads about as many partitions. It begins at
random positions: otherwise the first broker would lead the only partition of every small topic. Brokers that cannot
lead now get replicas, and never the first.

*Hashed* (rendezvous hashing): the replicas follow from the topic, the partition and the brokers alone, and a broker
that comes or goes moves only the placements that it is part of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from random import Random
from typing import NamedTuple

from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata.image import BrokerImage, ClusterImage


class BrokerSite(NamedTuple):
    """What placement needs to know of a broker."""

    id: int
    rack: str | None = None
    can_lead: bool = True


def sites(brokers: Mapping[int, BrokerImage]) -> list[BrokerSite]:
    """Return the brokers that are registered. Those that shut down lead nothing new."""
    return [BrokerSite(one.id, one.value.rack, not one.is_draining) for _, one in sorted(brokers.items())]


def check_replication_factor(factor: int, brokers: Sequence[BrokerSite]) -> None:
    """Raise the errors of Kafka's placement."""
    if factor <= 0:
        reason = f"Invalid replication factor {factor}: the replication factor must be positive."
    elif not any(broker.can_lead for broker in brokers):
        reason = "No broker is registered that can lead a partition."
    elif factor > len(brokers):
        reason = (
            f"The target replication factor of {factor} cannot be reached because only {len(brokers)} broker(s) "
            "are registered."
        )
    else:
        return
    raise RequestError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)


class _Cycle:
    """Brokers of one rack. In each turn all of them come once, beginning one further than in the turn before."""

    def __init__(self, brokers: Iterable[int], random: Random) -> None:
        self.brokers = sorted(brokers)
        self._start = random.randrange(len(self.brokers)) if self.brokers else 0
        self._turn = 0
        self._taken = 0

    def next(self, turn: int) -> int | None:
        if turn != self._turn:
            self._turn, self._taken = turn, 0
            self._start += 1
        if self._taken >= len(self.brokers):
            return None
        self._taken += 1
        return self.brokers[(self._start + self._taken - 1) % len(self.brokers)]


class _Rack:
    def __init__(self, brokers: Sequence[BrokerSite], random: Random) -> None:
        self.leaders = _Cycle((broker.id for broker in brokers if broker.can_lead), random)
        self._others = _Cycle((broker.id for broker in brokers if not broker.can_lead), random)

    def next(self, turn: int) -> int | None:
        found = self.leaders.next(turn)
        return self._others.next(turn) if found is None else found

    def shuffle(self, random: Random) -> None:
        random.shuffle(self.leaders.brokers)
        random.shuffle(self._others.brokers)


def place_striped(brokers: Sequence[BrokerSite], *, count: int, factor: int, seed: int) -> list[list[int]]:
    """Return the replicas of `count` partitions, the preferred leader first."""
    check_replication_factor(factor, brokers)
    random = Random(seed)
    by_rack: dict[str | None, list[BrokerSite]] = {}
    for broker in brokers:
        by_rack.setdefault(broker.rack, []).append(broker)
    # Brokers without a rack are a rack of their own, as in Kafka.
    racks = [_Rack(by_rack[name], random) for name in sorted(by_rack, key=lambda name: name or "")]
    leader_count = sum(broker.can_lead for broker in brokers)
    first_rack = random.randrange(len(racks))
    turn = 0
    placed = []
    for _ in range(count):
        if turn == leader_count and leader_count > 1:
            # Every broker has led once; another order keeps the same brokers from being together all the time.
            random.shuffle(racks)
            for rack in racks:
                rack.shuffle(random)
            turn = 0
        placed.append(_place_one(racks, first_rack % len(racks), turn, factor))
        turn += 1
        first_rack += 1
    return placed


def _place_one(racks: Sequence[_Rack], first: int, turn: int, factor: int) -> list[int]:
    at = first
    while (leader := racks[at].leaders.next(turn)) is None:
        at = (at + 1) % len(racks)
    replicas = [leader]
    # The leader's rack is passed over in the first round: the other racks come before it is used again.
    skipped: int | None = at
    at = first
    while len(replicas) < factor:
        if at == skipped:
            skipped = None
        else:
            found = racks[at].next(turn)
            if found is not None:
                replicas.append(found)
        at = (at + 1) % len(racks)
    return replicas


def place_hashed(
    brokers: Sequence[BrokerSite], *, topic: str, first: int, count: int, factor: int
) -> list[list[int]]:
    """Return the replicas of partitions `first` and following: on different racks as far as there are any."""
    check_replication_factor(factor, brokers)
    return [_hashed(brokers, topic, index, factor) for index in range(first, first + count)]


def _hashed(brokers: Sequence[BrokerSite], topic: str, index: int, factor: int) -> list[int]:
    ranked = sorted(
        brokers,
        key=lambda broker: blake2b(f"{topic}/{index}/{broker.id}".encode(), digest_size=8).digest(),
    )
    leader = next(broker for broker in ranked if broker.can_lead)
    chosen, used = [leader], {leader.rack}
    left = [broker for broker in ranked if broker is not leader]
    while len(chosen) < factor:
        found = next((broker for broker in left if broker.rack not in used), None)
        if found is None:
            # Every rack is used: all may be used once more.
            used.clear()
            continue
        chosen.append(found)
        used.add(found.rack)
        left.remove(found)
    return [broker.id for broker in chosen]


class ClusterPlacement:
    """The placement on the brokers that the image shows (`metadata.topics.Placement`)."""

    def __init__(
        self, image: ClusterImage, seed: Callable[[], int], *, is_hashed: Callable[[], bool] = lambda: False
    ) -> None:
        """`seed` returns a random number; `is_hashed` whether replicas are placed by their hash."""
        self._image = image
        self._seed = seed
        self._is_hashed = is_hashed

    def brokers(self) -> Sequence[int]:
        return sorted(self._image.brokers)

    def place(self, topic: str, *, first: int, count: int, factor: int) -> list[list[int]]:
        brokers = sites(self._image.brokers)
        if self._is_hashed():
            return place_hashed(brokers, topic=topic, first=first, count=count, factor=factor)
        return place_striped(brokers, count=count, factor=factor, seed=self._seed())
