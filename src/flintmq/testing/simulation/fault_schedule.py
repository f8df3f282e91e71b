"""What goes wrong in a world, and when: values that can be printed, pasted into a test, and left out singly. Pure.

    schedule = random_schedule(seed, brokers=[1, 2, 3], duration_s=30)
    smaller = shrink(schedule, lambda faults: bool(problems_with(faults)))

Times are seconds from the moment at which the schedule is given to the world. Faults that last end by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from flintmq.testing.simulation.disk import FaultyOperation
from flintmq.testing.simulation.store import TxnFault
from flintmq.testing.simulation.wires import CLIENTS, STORE, Link, broker_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledFault:
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KillBroker(ScheduledFault):
    """`kill -9`, then a start after `down_s`. With `disk_operation`, right before that operation from now on."""

    node: int
    down_s: float
    disk_operation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPower(ScheduledFault):
    """The machine loses what it had not synced. `disk_operation` as in `KillBroker`."""

    node: int
    down_s: float
    disk_operation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartBroker(ScheduledFault):
    """An orderly stop, then a start."""

    node: int
    down_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseBroker(ScheduledFault):
    node: int
    for_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDisk(ScheduledFault):
    node: int
    for_s: float
    operation_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FillDisk(ScheduledFault):
    node: int
    for_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailDisk(ScheduledFault):
    """The nth operation of this kind from now on fails."""

    node: int
    operation: FaultyOperation
    nth: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpClock(ScheduledFault):
    node: int
    by_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewClock(ScheduledFault):
    """The clock runs at another rate from now on."""

    node: int
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLinks(ScheduledFault):
    """A partition of the network. With `period_s` it flaps: blocked and open by turns of that length."""

    for_s: float
    links: tuple[Link, ...]
    shape: str
    period_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DropConnections(ScheduledFault):
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayMessages(ScheduledFault):
    for_s: float
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailTransaction(ScheduledFault):
    """The next transaction of this broker on the metadata store fails."""

    node: int
    outcome: TxnFault


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireLeases(ScheduledFault):
    """The broker loses its leases, though it lives."""

    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactStore(ScheduledFault):
    """The metadata store forgets its history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLeaders(ScheduledFault):
    """Every partition gets another leader of its ISR, several times, though the one that it has lives."""

    times: int
    period_s: float


Schedule = tuple[ScheduledFault, ...]


# ---- shapes of partitions


def both_ways(a: Sequence[str], b: Sequence[str]) -> tuple[Link, ...]:
    """Return all links between two groups of machines."""
    return tuple(link for one in a for other in b for link in ((one, other), (other, one)))


def isolated(node: int, brokers: Sequence[int]) -> tuple[Link, ...]:
    """The broker is cut off from its peers, the store and all clients."""
    others = [broker_name(other) for other in brokers if other != node]
    return both_ways([broker_name(node)], [*others, STORE, CLIENTS])


def one_way(source: int, brokers: Sequence[int]) -> tuple[Link, ...]:
    """What the broker sends to other brokers and to the store is lost, and not what they send."""
    targets = [*(broker_name(other) for other in brokers if other != source), STORE]
    return tuple((broker_name(source), target) for target in targets)


def bridge(brokers: Sequence[int], middle: int) -> tuple[Link, ...]:
    """Two halves that see each other only through the broker in the middle."""
    rest = [broker_name(node) for node in brokers if node != middle]
    half = len(rest) // 2
    return both_ways(rest[:half], rest[half:])


def clients_only(node: int, brokers: Sequence[int]) -> tuple[Link, ...]:
    """The broker sees clients, and neither its peers nor the store."""
    others = [broker_name(other) for other in brokers if other != node]
    return both_ways([broker_name(node)], [*others, STORE])


def without_store(node: int) -> tuple[Link, ...]:
    return both_ways([broker_name(node)], [STORE])


def store_down(brokers: Sequence[int]) -> tuple[Link, ...]:
    return both_ways([broker_name(node) for node in brokers], [STORE])


# ---- from a seed


def random_schedule(
    seed: int,
    *,
    brokers: Sequence[int],
    duration_s: float,
    count: int = 6,
    power: bool = True,
    disk: bool = True,
) -> Schedule:
    """Return `count` faults. Without `power`, no machine loses it; without `disk`, no disk fails or is full."""
    random = Random(f"{seed} faults")
    kinds: list[Callable[[Random, float, Sequence[int]], ScheduledFault]] = [
        _kill, _kill, _restart, _pause, _slow_disk, _jump, _skew, _block, _block, _block, _drop, _delay, _transaction,
        _expire, _compact, _move, _move,
    ]  # fmt: skip
    if power:
        kinds += [_cut_power, _cut_power]
    if disk:
        kinds += [_fill_disk, _fail_disk]
    times = sorted(round(random.uniform(0.0, duration_s), 3) for _ in range(count))
    return tuple(random.choice(kinds)(random, at_s, brokers) for at_s in times)


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """Leave out faults one at a time, as long as what is left still fails."""
    index = 0
    while index < len(schedule):
        fewer = schedule[:index] + schedule[index + 1 :]
        if fails(fewer):
            # Those before may have been needed only because of this one.
            schedule, index = fewer, 0
        else:
            index += 1
    return schedule


def _seconds(random: Random, least: float, most: float) -> float:
    return round(random.uniform(least, most), 3)


def _operation(random: Random) -> int:
    return random.choice((0, random.randint(1, 30)))


def _kill(random: Random, at_s: float, brokers: Sequence[int]) -> ScheduledFault:
    return KillBroker(
        at_s=at_s,
        node=random.choice(brokers),
        down_s=_seconds(random, 0.1, 8),
        disk_operation=_operation(random),
    )


def _cut_power(random: Random, at_s: float, brokers: Sequence[int]) -> ScheduledFault:
    return CutPower(
        at_s=at_s,
        node=random.choice(brokers),
        down_s=_seconds(random, 0.5, 10),
        disk_operation=_operation(random),
    )


def _restart(random: Random, at_s: float, brokers: Sequence[int]) -> ScheduledFault:
    return RestartBroker(at_s=at_s, node=random.choice(brokers), down_s=_seconds(random, 0.1, 3))


def _pause(random: Random, at_s: float, brokers: Sequence[int]) -> ScheduledFault:
    return PauseBroker(at_s=at_s, node=random.choice(brokers), for_s=random.choice((0.5, 5.0, 30.0)))


def _slow_disk(random: Random, at_s: float, brokers: Sequence[int]) -> ScheduledFault:
    return SlowDisk(
        at_s=at_s,
        node=random.choice(brokers),
        for_s=_seconds(random, 1, 10),
        operation_s=random.choice((0.005, 0.05, 0.3)),
    )


def _fill_disk(random: Random, at_s: float, brokers: Sequence[int]) -> ScheduledFault:
    return FillDisk(at_s=at_s, node=random.choice(brokers), for_s=_seconds(random, 0.5, 8))


def _fail_disk(random: Random, at_s: float, brokers: Sequence[int]) -> ScheduledFault:
    operations: tuple[FaultyOperation, ...] = ("write", "sync", "sync", "sync_dir")
    return FailDisk(
        at_s=at_s, node=random.choice(brokers), operation=random.choice(operations), nth=random.randint(1, 4)
    )


def _jump(random: Random, at_s: float, brokers: Sequence[int]) -> ScheduledFault:
    by_ms = random.choice((-3_600_000, 3_600_000, random.randint(-5_000, 5_000)))
    return JumpClock(at_s=at_s, node=random.choice(brokers), by_ms=by_ms)


def _skew(random: Random, at_s: float, brokers: Sequence[int]) -> ScheduledFault:
    return SkewClock(
        at_s=at_s, node=random.choice(brokers), rate=random.choice((0.5, 0.9, 0.999, 1.001, 1.1, 2.0))
    )


def _block(random: Random, at_s: float, brokers: Sequence[int]) -> ScheduledFault:
    node = random.choice(brokers)
    shape = random.choice(
        ("isolated", "one way", "bridge", "clients only", "without store", "store down", "flapping")
    )
    links = {
        "isolated": isolated(node, brokers),
        "one way": one_way(node, brokers),
        "bridge": bridge(brokers, node),
        "clients only": clients_only(node, brokers),
        "without store": without_store(node),
        "store down": store_down(brokers),
        "flapping": isolated(node, brokers),
    }[shape]
    return BlockLinks(
        at_s=at_s,
        for_s=_seconds(random, 0.2, 15),
        links=links,
        shape=shape,
        period_s=_seconds(random, 0.1, 1.5) if shape == "flapping" else 0.0,
    )


def _drop(random: Random, at_s: float, brokers: Sequence[int]) -> ScheduledFault:
    return DropConnections(at_s=at_s, node=random.choice(brokers))


def _delay(random: Random, at_s: float, brokers: Sequence[int]) -> ScheduledFault:
    return DelayMessages(at_s=at_s, for_s=_seconds(random, 1, 10), delay_s=random.choice((0.05, 0.3, 1.0)))


def _transaction(random: Random, at_s: float, brokers: Sequence[int]) -> ScheduledFault:
    return FailTransaction(at_s=at_s, node=random.choice(brokers), outcome=random.choice(list(TxnFault)))


def _expire(random: Random, at_s: float, brokers: Sequence[int]) -> ScheduledFault:
    return ExpireLeases(at_s=at_s, node=random.choice(brokers))


def _move(random: Random, at_s: float, brokers: Sequence[int]) -> ScheduledFault:
    return MoveLeaders(at_s=at_s, times=random.randint(1, 6), period_s=_seconds(random, 0.005, 0.5))


def _compact(random: Random, at_s: float, brokers: Sequence[int]) -> ScheduledFault:
    return CompactStore(at_s=at_s)
