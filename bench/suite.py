"""Rounds over all workloads and brokers, interleaved: all brokers meet the same minute of the machine.

Invariant: whatever happens, every broker that was started is gone and every folder removed when `run` returns.
A workload that fails on one broker is noted and the rest goes on; a broker that died is replaced.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from bench import machine, rdkafka
from bench.figures import Comparison, Cost, Figure, compare
from bench.machine import Cores
from bench.peers import CannotRun, Peer
from bench.process import Broker, BrokerFailed
from bench.tls import TlsFiles, make_certificates
from bench.workloads import Target, Workload
from bench.workloads.librdkafka import WORKLOADS as LIBRDKAFKA
from bench.workloads.requests import WORKLOADS as REQUESTS
from bench.workloads.streams import WORKLOADS as STREAMS
from flintmq.errors import FlintError

# What a workload may end with when the broker, not the benchmark, is at fault.
FAILURES = (
    OSError,
    FlintError,
    AssertionError,
    BrokerFailed,
    CannotRun,
    rdkafka.DeliveryFailed,
    subprocess.SubprocessError,
)

# A first pass over the main paths, for a JVM compiles what has run often. The same for every scale: a JVM
# that has not compiled its hot paths costs several times as much.
_WARMING_SCALE = 0.2
_WARMING = (*STREAMS[:4], LIBRDKAFKA[0], *REQUESTS[:2])


@dataclass(frozen=True, slots=True)
class Plan:
    workloads: Sequence[Workload]
    rounds: int
    scale: float
    recovery_gb: float
    folder: str
    """An empty folder for the brokers' own."""
    warm: bool = True

    def tls_files(self) -> TlsFiles | None:
        """Make certificates, if a workload needs them."""
        if not any(one.needs_tls for one in self.workloads):
            return None
        return make_certificates(os.path.join(self.folder, "certificates"))


@dataclass(slots=True)
class Measurement:
    """One workload, once, on one broker."""

    round: int
    workload: str
    broker: str
    figures: list[Figure]
    load: float
    foreign_cores: float | None
    """How many cores were busy with other work, on average; None if it was over too soon to tell."""
    error: str | None = None


@dataclass(slots=True)
class Results:
    brokers: list[str]
    measurements: list[Measurement] = field(default_factory=list)

    partial: frozenset[str] = frozenset()
    """Brokers of which nobody expects that they can do everything."""

    @property
    def errors(self) -> list[Measurement]:
        return [one for one in self.measurements if one.error is not None and one.broker not in self.partial]

    @property
    def foreign_cores_max(self) -> float:
        return max((one.foreign_cores or 0.0 for one in self.measurements), default=0.0)

    def comparisons(self) -> list[Comparison]:
        rows = []
        for workload in dict.fromkeys(one.workload for one in self.measurements):
            by_round: dict[int, dict[str, list[Figure]]] = {}
            for one in self.measurements:
                if one.workload == workload and one.error is None:
                    by_round.setdefault(one.round, {})[one.broker] = one.figures
            rows += compare(workload, by_round.values())
        return rows


def run(
    peers: Sequence[Peer],
    plan: Plan,
    *,
    say: Callable[[str], object],
    after_each: Callable[[Results], object] = lambda _: None,
) -> Results:
    """Everything, in this process's thread; `after_each` gets what is known after every measurement."""
    cores = Cores.available()
    allowed = os.sched_getaffinity(0)
    partial = frozenset(peer.name for peer in peers if peer.is_partial)
    results = Results([peer.name for peer in peers], partial=partial)
    os.sched_setaffinity(0, cores.client)
    try:
        with ExitStack() as brokers:
            tls = plan.tls_files()
            slots = [brokers.enter_context(_Slot(peer, plan, cores, tls)) for peer in peers]
            for slot in slots:
                say(f"starting {slot.peer.name}")
                target = slot.target()
                if plan.warm:
                    say(f"warming {slot.peer.name}")
                    _warm(target, plan.workloads)
            for number in range(1, plan.rounds + 1):
                for workload in plan.workloads:
                    # Every other round in reverse order, so that no broker always follows the same one.
                    for slot in slots if number % 2 else reversed(slots):
                        # What the one before left to be written back would be paid for by the next.
                        os.sync()
                        one = _measure(slot, workload, number)
                        results.measurements.append(one)
                        say(_line(one, plan.rounds))
                        after_each(results)
    finally:
        os.sched_setaffinity(0, allowed)
    return results


class _Slot(ExitStack):
    """One peer's broker, replaced if it has died."""

    def __init__(self, peer: Peer, plan: Plan, cores: Cores, tls: TlsFiles | None) -> None:
        super().__init__()
        self.peer = peer
        self._plan = plan
        self._cores = cores
        self._tls = tls
        self._broker: Broker | None = None
        self._count = 0

    def target(self) -> Target:
        if self._broker is None or not self._broker.is_running:
            self._count += 1
            folder = os.path.join(self._plan.folder, f"{self.peer.name.lower()}-{self._count}", "main")
            self._broker = self.enter_context(Broker(self.peer, folder, self._cores, self._tls))
            self._broker.start()
        return Target(self._broker, self._plan.scale, self._plan.recovery_gb)


def _warm(target: Target, chosen: Sequence[Workload]) -> None:
    gentle = Target(target.broker, _WARMING_SCALE, target.recovery_gb)
    for workload in (*_WARMING, *(one for one in chosen if one.needs_tls)):
        if not workload.needs_librdkafka or rdkafka.is_available():
            with suppress(*FAILURES if target.broker.peer.is_partial else ()):
                workload.run(gentle)


def _measure(slot: _Slot, workload: Workload, number: int) -> Measurement:
    figures: list[Figure] = []
    error = None
    costs: list[Cost] = []
    load = machine.load()
    try:
        target = slot.target()
        costs = target.costs
        figures = workload.run(target)
    except FAILURES as failure:
        error = f"{type(failure).__name__}: {failure}"
    return Measurement(
        round=number,
        workload=workload.name,
        broker=slot.peer.name,
        figures=figures,
        load=load,
        foreign_cores=_foreign_cores(costs),
        error=error,
    )


def _foreign_cores(costs: Sequence[Cost]) -> float | None:
    wall_s = sum(cost.wall_s for cost in costs)
    # Ticks are too coarse for a shorter time.
    return sum(cost.foreign_cpu_s for cost in costs) / wall_s if wall_s >= 0.5 else None


def _line(one: Measurement, rounds: int) -> str:
    head = f"[{one.round}/{rounds}] {one.workload:16} {one.broker:8}"
    if one.error is not None:
        return f"{head} FAILED {one.error}"
    shown = ", ".join(
        f"{figure.name} {figure.value:.4g} {figure.unit}".rstrip() for figure in one.figures[:2]
    )
    others = f" (others: {one.foreign_cores:.2f} cores)" if one.foreign_cores is not None else ""
    return f"{head} {shown}{others}"
