"""A machine with a real broker on it, without sockets: its disk, its clock, and the process that runs now.

A broker that cannot start, or whose metadata fails, ends; like a supervisor, the machine starts it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from flintmq.app.assembly import BrokerCore, assemble
from flintmq.app.broker_cluster import BrokerCluster
from flintmq.effects import Effects
from flintmq.errors import FlintError
from flintmq.metadata.local_store import LocalMetadataStore
from flintmq.metadata.store import MetadataStore
from flintmq.settings import LoadedSettings, load
from flintmq.testing.simulation.disk import SimulatedDisk
from flintmq.testing.simulation.loop import SimulatedRandom
from flintmq.testing.simulation.network import Service
from flintmq.testing.simulation.process import MachineClock, SimulatedProcess, TimedExecutor
from flintmq.testing.simulation.subprocess import SimulatedSubprocess
from flintmq.testing.simulation.wires import broker_name

if TYPE_CHECKING:
    from flintmq.testing.simulation.world import World

logger = logging.getLogger(__name__)

_DATA_DIR = "data"
_DESCRIPTORS = 64
_RESTART_S = 1.0


_NextDisk = Callable[[], SimulatedDisk]


class _DeathByDisk:
    def __init__(self, left: int, power: bool) -> None:
        self.left = left
        self.power = power


class BrokerNode:
    def __init__(self, world: World, node_id: int, settings: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.name = broker_name(node_id)
        self.world = world
        self.clock = MachineClock(world.timeline)
        self.disk = SimulatedDisk(world.random.getrandbits(64))
        self.settings: LoadedSettings = load(command_line=[*settings.items(), ("node.id", str(node_id))])
        self.process: SimulatedProcess | None = None
        self.core: BrokerCore | None = None
        """The broker that runs now, from the end of its start on."""
        self.subprocess: SimulatedSubprocess | None = None
        self.has_power = True
        self.boots = 0
        """How often the machine has lost its power: processes of one boot have the same number."""
        self.starts = 0
        self._truncations_before = 0
        self.may_lose_records: Callable[[], bool] = lambda: True
        """Asked before the machine loses what it has not synced, or its disk fails."""
        self.disk_operation_s = 0.0
        """How long each operation of the disk takes."""
        self._executor: TimedExecutor | None = None
        self._deaths: list[_DeathByDisk] = []
        self._space_taken_bytes = 0
        self._restarts_after_s: float | None = None

    # ---- life

    def start(self) -> None:
        assert self.process is None, f"{self.name} runs"
        self.has_power = True
        self.starts += 1
        self._note(f"start {self.starts}")
        self.process = process = SimulatedProcess(self.name, self.world.timeline, self.clock)
        self.world.add(process, self)
        self._watch_disk()
        process.spawn(self._run(process))

    def kill(self) -> None:
        """End the process where it is. What it has written is there. Nothing happens if none runs."""
        self._end("kill", self.disk.kill)

    def lose_power(self) -> None:
        """End the process and lose what is not on stable storage."""
        if self.process is None:
            return
        if not self.may_lose_records():
            self.kill()
            return
        self.has_power = False
        self._end("power loss", self.disk.crash)
        self.clock.reboot()
        self.boots += 1

    def pause(self) -> None:
        """Stop the process, as SIGSTOP does."""
        if self.process is not None:
            self._note("pause")
            self.process.is_paused = True

    def resume(self) -> None:
        if self.process is not None and self.process.is_paused:
            self._note("resume")
            self.process.is_paused = False

    def stop(self) -> None:
        """Begin an orderly stop; the process is gone when it is done."""
        if self.process is not None and self.core is not None:
            self._note("stop")
            core, self.core = self.core, None
            self.process.spawn(self._stop(self.process, core))

    def start_after_end(self, down_s: float) -> None:
        """Start the broker that long after the process that runs now has ended."""
        self._restarts_after_s = down_s

    def set_clock_rate(self, rate: float) -> None:
        self.clock.set_rate(rate)
        if self.process is not None:
            self.process.retime()

    @property
    def service(self) -> Service | None:
        """What connections are made to; None while the broker does not serve."""
        if self.core is None or self.process is None:
            return None
        return Service(self.process, self.core.dispatcher)

    # ---- the disk

    def die_at_disk_operation(self, count: int, *, power: bool) -> None:
        """Kill the process, or cut its power, right before its disk's operation of that number from now on."""
        self._deaths.append(_DeathByDisk(count, power))

    def fill_disk(self) -> None:
        self._space_taken_bytes += self.disk.free_bytes
        self.disk.free_bytes = 0

    def free_disk(self) -> None:
        self.disk.free_bytes += self._space_taken_bytes
        self._space_taken_bytes = 0

    def mend_disk(self) -> None:
        """Forget faults and deaths that have not come yet."""
        self.disk.mend()
        self._deaths.clear()

    def replace_disk(self) -> None:
        """Give a machine whose broker does not run a disk with nothing on it."""
        assert self.process is None, f"{self.name} runs"
        self._note("new disk")
        self.disk = SimulatedDisk(self.world.random.getrandbits(64))

    @property
    def has_failed_logs(self) -> bool:
        """Whether a log is offline, which only a restart mends."""
        core = self.core
        return core is not None and any(log.offline is not None for log in core.log_dir.logs.values())

    @property
    def truncations(self) -> int:
        """How often logs were truncated, by all processes."""
        logs = () if self.core is None else self.core.log_dir.logs.values()
        return self._truncations_before + sum(log.generation for log in logs)

    # ----

    async def _run(self, process: SimulatedProcess) -> None:
        seed = f"{self.world.seed} {self.name} {self.starts}"
        self._executor = executor = TimedExecutor(process, seed)
        self.subprocess = subprocess = SimulatedSubprocess(self.disk, executor)
        effects = Effects(
            clock=self.clock,
            timers=process.loop,
            random=SimulatedRandom(seed),
            disk=self.disk,
            executor=executor,
            subprocess=subprocess,
            network=self.world.network.of(process, self.name) if self.world.store is not None else None,
            boot_id=f"{self.name} {self.boots}",
        )

        async def open_store() -> MetadataStore:
            if self.world.store is not None:
                return self.world.store.open(process, self.name)
            return await LocalMetadataStore.open(
                f"{_DATA_DIR}/metadata",
                disk=self.disk,
                clock=self.clock,
                timers=process.loop,
                executor=executor,
                on_fatal=fatal,
            )

        def fatal(error: BaseException) -> None:
            logger.warning("%s stops: %s", self.name, error)
            # In a step of its own: the broker is in the middle of something.
            self.world.timeline.after(0.0, lambda: self._fail(process))

        try:
            core = await assemble(
                self.settings,
                effects,
                open_store,
                data_dir=_DATA_DIR,
                descriptors=_DESCRIPTORS,
                on_fatal=fatal,
            )
            await core.start()
        except (FlintError, OSError) as error:
            logger.warning("%s cannot start: %s", self.name, error)
            self.world.timeline.after(0.0, lambda: self._fail(process))
            return
        if process.is_alive:
            core.start_housekeeping()
            self.core = core
            self._note("serves")
            if core.cluster is not None:
                await self._join(process, core.cluster)

    async def _join(self, process: SimulatedProcess, cluster: BrokerCluster) -> None:
        try:
            await cluster.join()
        except (FlintError, OSError) as error:
            logger.warning("%s cannot join its cluster: %s", self.name, error)
            self.world.timeline.after(0.0, lambda: self._fail(process))
        else:
            self._note("has joined")

    @property
    def is_up(self) -> bool:
        """Whether the broker serves, and is registered in its cluster."""
        core = self.core
        return core is not None and (core.cluster is None or core.cluster.broker_epoch >= 0)

    async def _stop(self, process: SimulatedProcess, core: BrokerCore) -> None:
        try:
            if core.cluster is not None:
                await core.cluster.drain()
            await core.stop()
        except (FlintError, OSError) as error:
            logger.warning("%s did not stop in order: %s", self.name, error)
        if process.is_alive:
            self.world.timeline.after(0.0, lambda: self._stopped(process))

    def _stopped(self, process: SimulatedProcess) -> None:
        if process is self.process:
            self._end("end", self.disk.kill)

    def _fail(self, process: SimulatedProcess) -> None:
        if process is self.process:
            if self._restarts_after_s is None:
                self._restarts_after_s = _RESTART_S
            self.kill()

    def start_if_down(self) -> None:
        if self.process is None:
            self.start()

    def _end(self, how: str, disk: _NextDisk) -> None:
        if self.process is None:
            return
        self._note(how)
        self._truncations_before = self.truncations
        process, self.process, self.core = self.process, None, None
        process.abandon()
        # ORDER: the next process gets a copy, so that the dead one can write what it likes.
        self.disk.observer = None
        self.disk = disk()
        self._deaths.clear()
        self.world.remove(process, silently=not self.has_power)
        if self._restarts_after_s is not None:
            self.world.timeline.after(self._restarts_after_s, self.start_if_down)
            self._restarts_after_s = None

    # ---- the disk, watched

    def _watch_disk(self) -> None:
        disk = self.disk

        def observe(operation: str, path: str) -> None:
            self.world.trace.note(f"{self.name} {operation} {path}")
            if self._executor is not None:
                self._executor.disk_time.spent_s += self.disk_operation_s
            for death in list(self._deaths):
                death.left -= 1
                if death.left <= 0 and self.disk is disk:
                    if death.power:
                        self.lose_power()
                    else:
                        self.kill()

        disk.observer = observe
        disk.may_fail = lambda: self.may_lose_records()

    def turned(self) -> None:
        """The process has had a turn: a slow disk holds it up for as long as it would have waited."""
        if self.process is not None and self._executor is not None:
            spent_s = self._executor.disk_time.leave_loop()
            if spent_s:
                self.process.busy_until_s = self.world.timeline.now_s + spent_s

    def _note(self, text: str) -> None:
        self.world.trace.note(f"{self.name}: {text}")
