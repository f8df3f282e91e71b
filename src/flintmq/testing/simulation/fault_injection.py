"""Carries out a schedule of faults in a world, and mends everything in the end.

Invariant: a fault that does not fit, such as a kill of a broker that is down, does nothing; so a schedule stays one
whatever is left out of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from flintmq.metadata import keys
from flintmq.metadata.store import Put
from flintmq.testing.simulation.broker_node import BrokerNode
from flintmq.testing.simulation.fault_schedule import (
    BlockLinks,
    CompactStore,
    CutPower,
    DelayMessages,
    DropConnections,
    ExpireLeases,
    FailDisk,
    FailTransaction,
    FillDisk,
    JumpClock,
    KillBroker,
    MoveLeaders,
    PauseBroker,
    RestartBroker,
    Schedule,
    ScheduledFault,
    SkewClock,
    SlowDisk,
)
from flintmq.testing.simulation.store import SimulatedStore
from flintmq.testing.simulation.world import World

_CHECK_S: Final = 1.0


class FaultInjection:
    def __init__(self, world: World) -> None:
        self._world = world
        self._lasting: dict[int, Callable[[], object]] = {}
        self._last_id = 0
        self._is_over = False

    def schedule(self, faults: Schedule) -> None:
        """Let these faults happen, from now on."""
        for fault in faults:
            self._world.timeline.after(fault.at_s, partial(self._inject, fault))

    def mend(self) -> None:
        """End all faults that last, let no more happen, and keep all brokers running from now on."""
        self._is_over = True
        for end in list(self._lasting.values()):
            end()
        self._lasting.clear()
        for node in self._world.brokers.values():
            node.mend_disk()
        self._keep_running()

    def _keep_running(self) -> None:
        """Start what is down and what a disk has failed: a log that is offline stays so until a restart.

        Again and again, for a broker may learn of a failure only after the disk is mended.
        """
        for node in self._world.brokers.values():
            if node.has_failed_logs:
                node.kill()
            node.start_if_down()
        self._world.timeline.after(_CHECK_S, self._keep_running)

    def _inject(self, fault: ScheduledFault) -> None:
        if self._is_over:
            return
        world = self._world
        world.trace.note(f"fault {fault}")
        world.counts[type(fault).__name__] += 1
        match fault:
            case KillBroker():
                self._end_process(world.brokers[fault.node], fault.disk_operation, fault.down_s, power=False)
            case CutPower():
                self._end_process(world.brokers[fault.node], fault.disk_operation, fault.down_s, power=True)
            case RestartBroker():
                node = world.brokers[fault.node]
                node.stop()
                node.start_after_end(fault.down_s)
            case PauseBroker():
                node = world.brokers[fault.node]
                node.pause()
                self._last(fault.for_s, node.resume)
            case SlowDisk():
                self._slow_disk(world.brokers[fault.node], fault)
            case FillDisk():
                node = world.brokers[fault.node]
                node.fill_disk()
                self._last(fault.for_s, node.free_disk)
            case FailDisk():
                world.brokers[fault.node].disk.fail(fault.operation, nth=fault.nth)
            case JumpClock():
                world.brokers[fault.node].clock.jump(fault.by_ms)
            case SkewClock():
                world.brokers[fault.node].set_clock_rate(fault.rate)
            case BlockLinks():
                self._block(fault)
            case DropConnections():
                world.network.drop_connections(world.brokers[fault.node].name)
            case DelayMessages():
                self._delay(fault)
            case FailTransaction() if world.store is not None:
                world.store.fail_next(world.brokers[fault.node].name, fault.outcome)
            case ExpireLeases() if world.store is not None:
                world.store.expire_leases(world.brokers[fault.node].name)
            case CompactStore() if world.store is not None:
                world.store.compact()
            case MoveLeaders() if world.store is not None:
                self._move_leaders(world.store, fault.times, fault.period_s)

    def _last(self, for_s: float, end: Callable[[], object]) -> None:
        self._last_id += 1
        key = self._last_id
        self._lasting[key] = end

        def over() -> None:
            if self._lasting.pop(key, None) is not None:
                end()

        self._world.timeline.after(for_s, over)

    def _end_process(self, node: BrokerNode, disk_operation: int, down_s: float, *, power: bool) -> None:
        if node.process is None:
            return
        node.start_after_end(down_s)
        if disk_operation:
            node.die_at_disk_operation(disk_operation, power=power)
        elif power:
            node.lose_power()
        else:
            node.kill()

    def _slow_disk(self, node: BrokerNode, fault: SlowDisk) -> None:
        node.disk_operation_s += fault.operation_s

        def end() -> None:
            node.disk_operation_s = max(0.0, node.disk_operation_s - fault.operation_s)

        self._last(fault.for_s, end)

    def _delay(self, fault: DelayMessages) -> None:
        wires = self._world.wires
        wires.extra_delay_s += fault.delay_s

        def end() -> None:
            wires.extra_delay_s = max(0.0, wires.extra_delay_s - fault.delay_s)

        self._last(fault.for_s, end)

    def _move_leaders(self, store: SimulatedStore, times: int, period_s: float) -> None:
        for key in sorted(store.items):
            if key.startswith(keys.PARTITIONS):
                _elect_next(store, key)
        if times > 1 and not self._is_over:
            self._world.timeline.after(period_s, partial(self._move_leaders, store, times - 1, period_s))

    def _block(self, fault: BlockLinks) -> None:
        wires, timeline = self._world.wires, self._world.timeline
        is_blocked = is_over = False

        def switch() -> None:
            nonlocal is_blocked
            if is_over:
                return
            (wires.unblock if is_blocked else wires.block)(fault.links)
            is_blocked = not is_blocked
            if fault.period_s:
                timeline.after(fault.period_s, switch)

        def end() -> None:
            nonlocal is_over
            if is_blocked:
                wires.unblock(fault.links)
            is_over = True

        switch()
        self._last(fault.for_s, end)


def _elect_next(store: SimulatedStore, key: str) -> None:
    """Elect the next member of the ISR that is registered as it was when it joined, as a controller may."""
    value = keys.decode_partition(store.items[key].value)
    if value.leader not in value.isr or len(value.isr_epochs) != len(value.isr):
        return
    at = value.isr.index(value.leader)
    members = list(zip(value.isr, value.isr_epochs, strict=True))
    for node, epoch in members[at + 1 :] + members[:at]:
        registration = store.items.get(keys.broker(node))
        if registration is not None and registration.revision == epoch:
            elected = replace(value, leader=node, epoch=value.epoch + 1)
            store.txn({key: store.items[key].revision}, {key: Put(keys.encode(elected))})
            return
