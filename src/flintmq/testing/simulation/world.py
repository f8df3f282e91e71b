"""A cluster of real brokers in one process and in virtual time, from a seed.

    with World(seed, brokers=3) as world:
        world.start()
        task = world.clients.spawn(work(world))
        world.run_until(task)

Every process has an event loop of its own, and the world gives them turns in an order that the seed decides; time
moves when none of them has anything to do. The same seed and the same program give the same run, and the same
`trace.digest()`. The interpreter's hash seed must be fixed (PYTHONHASHSEED=0) where runs of different processes are
compared.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from types import TracebackType
from typing import TypeVar

from flintmq.testing.simulation.broker_node import BrokerNode
from flintmq.testing.simulation.network import ProcessNetwork, SimulatedNetwork
from flintmq.testing.simulation.process import MachineClock, SimulatedProcess
from flintmq.testing.simulation.store import SimulatedStore
from flintmq.testing.simulation.timeline import Timeline, Trace
from flintmq.testing.simulation.wires import CLIENTS, Wires

T = TypeVar("T")

_ITERATIONS_MAX = 8
_TURNS_PER_INSTANT_MAX = 200_000
_TURNS_PER_MICROSECOND = 1_000


class WorldStuck(Exception):
    """What is waited for cannot happen any more, or takes too long."""


class World:
    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        own_settings: Mapping[int, Mapping[str, str]] | None = None,
        shared_store: bool = True,
    ) -> None:
        """`settings` are those of all brokers, `own_settings` those of single ones, by their ids, which begin at 1.

        Without a shared store, each broker keeps its metadata on its own disk.
        """
        self.seed = seed
        self.random = Random(f"{seed} world")
        self.timeline = Timeline()
        self.trace = Trace(self.timeline)
        self.wires = Wires(self.timeline, self.trace, f"{seed} wires")
        self.network = SimulatedNetwork(self.wires)
        self.store = SimulatedStore(self.wires) if shared_store else None
        self.counts: Counter[str] = Counter()
        """What happened how often, by name."""
        self._processes: list[tuple[SimulatedProcess, BrokerNode | None]] = []
        self._dead: list[SimulatedProcess] = []
        self._turns = Random(f"{seed} turns")
        self._instant_turns = 0
        self._collects = gc.isenabled()
        self.clients = SimulatedProcess(CLIENTS, self.timeline, MachineClock(self.timeline))
        self.add(self.clients, None)
        self.client_network: ProcessNetwork = self.network.of(self.clients, CLIENTS)
        self.brokers = {
            node_id: BrokerNode(self, node_id, {**(settings or {}), **(own_settings or {}).get(node_id, {})})
            for node_id in range(1, brokers + 1)
        }
        self.network.hosts.update({node.name: node for node in self.brokers.values()})

    # ---- life

    def __enter__(self) -> World:
        # Finalizers would otherwise run at moments that depend on what the interpreter did before.
        gc.disable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free everything. Suspended tasks run their `finally` blocks here, when they can change nothing any more."""
        for process, _ in self._processes:
            process.abandon()
            self._dead.append(process)
        self._processes.clear()
        hook = sys.unraisablehook
        sys.unraisablehook = lambda unraisable: None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for process in self._dead:
                    process.dispose()
                self._dead.clear()
                for node in self.brokers.values():
                    node.core = node.process = None
                gc.collect()
        finally:
            sys.unraisablehook = hook
            if self._collects:
                gc.enable()

    def start(self) -> None:
        """Start all brokers, and return when they serve and know of each other."""
        for node in self.brokers.values():
            node.start()
        self.run_until_true(
            lambda: all(self._is_settled(node) for node in self.brokers.values()), within_s=60
        )

    def _is_settled(self, node: BrokerNode) -> bool:
        if node.core is None or not node.is_up:
            return False
        image = node.core.metadata.image
        return self.store is None or (
            len(image.brokers) == len(self.brokers) and image.controller is not None
        )

    # ---- running

    def run_until(self, task: asyncio.Future[T], *, within_s: float = 600.0) -> T:
        """Run until a task of the clients is done, and return its result."""
        self.run_until_true(task.done, within_s=within_s)
        return task.result()

    def run_for(self, seconds: float) -> None:
        passed: list[None] = []
        self.timeline.after(seconds, lambda: passed.append(None))
        self.run_until_true(lambda: bool(passed), within_s=seconds + 1)

    def run_until_true(self, is_done: Callable[[], bool], *, within_s: float) -> None:
        deadline_s = self.timeline.now_s + within_s
        while not is_done():
            if not self.step():
                raise WorldStuck(f"seed {self.seed}: nothing can happen any more")
            if self.timeline.now_s > deadline_s:
                raise WorldStuck(f"seed {self.seed}: not done after {within_s} s of virtual time")

    def step(self) -> bool:
        """Let one event happen or one process have a turn; return False if there is nothing left to do."""
        if self.timeline.run_due():
            return True
        now_s = self.timeline.now_s
        ready: list[tuple[SimulatedProcess, BrokerNode | None]] = []
        next_s = self.timeline.next_s()
        for entry in self._processes:
            ready_s = entry[0].ready_s()
            if ready_s is None:
                continue
            if ready_s <= now_s:
                ready.append(entry)
            elif next_s is None or ready_s < next_s:
                next_s = ready_s
        if ready:
            self._turn(*self._turns.choice(ready))
        elif next_s is None:
            return False
        else:
            self.timeline.now_s = next_s
            self._instant_turns = 0
        return True

    def _turn(self, process: SimulatedProcess, node: BrokerNode | None) -> None:
        self._instant_turns += 1
        if self._instant_turns > _TURNS_PER_INSTANT_MAX:
            raise WorldStuck(f"seed {self.seed}: {process.name} never waits")
        if self._instant_turns % _TURNS_PER_MICROSECOND == 0:
            # Turns take time. asyncio runs timers a little early: who finds that it is not time yet tries again.
            self.timeline.now_s += 1e-6
        process.turn(self._turns.randint(1, _ITERATIONS_MAX))
        if node is not None:
            node.turned()

    # ---- for the nodes

    def add(self, process: SimulatedProcess, node: BrokerNode | None) -> None:
        self._processes.append((process, node))

    def remove(self, process: SimulatedProcess, *, silently: bool) -> None:
        """A process has died. It is kept until the world ends, so that none of its `finally` blocks runs."""
        self._processes = [entry for entry in self._processes if entry[0] is not process]
        self._dead.append(process)
        self.network.process_died(process, silently=silently)
