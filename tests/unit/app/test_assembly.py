"""The core of a broker on simulated effects: the order of its start, its housekeeping, and its stop."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from flintmq.app.assembly import BrokerCore, assemble
from flintmq.effects import Effects
from flintmq.errors import ConfigurationError
from flintmq.metadata.local_store import LocalMetadataStore
from flintmq.settings import load
from flintmq.testing.simulation import (
    SimulatedClock,
    SimulatedDisk,
    SimulatedExecutor,
    SimulatedLoop,
    SimulatedRandom,
    SimulatedSubprocess,
)

_CHECKPOINT_S = 5


class Machine:
    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.disk = SimulatedDisk(seed=1)
        self.events: list[str] = []
        self.cores: list[BrokerCore] = []
        executor = SimulatedExecutor(loop, seed=1)
        self.effects = Effects(
            clock=loop.clock,
            timers=loop,
            random=SimulatedRandom(1),
            disk=self.disk,
            executor=executor,
            subprocess=SimulatedSubprocess(self.disk, executor),
        )

    async def open_store(self) -> LocalMetadataStore:
        self.events.append("store, after the format" if self.disk.exists("data/format") else "store")
        effects = self.effects
        return await LocalMetadataStore.open(
            "data/metadata",
            disk=effects.disk,
            clock=effects.clock,
            timers=effects.timers,
            executor=effects.executor,
        )

    def assemble(self) -> BrokerCore:
        interval_ms = str(_CHECKPOINT_S * 1000)
        loaded = load(command_line=[("log.flush.offset.checkpoint.interval.ms", interval_ms)])
        core = self.loop.run_until_complete(
            assemble(loaded, self.effects, self.open_store, data_dir="data", descriptors=8)
        )
        self.cores.append(core)
        return core

    def close(self) -> None:
        for core in self.cores:
            core.stop_housekeeping()
            self.loop.run_until_complete(core.metadata.close())


@pytest.fixture
def machine() -> Iterator[Machine]:
    with closing(SimulatedLoop(SimulatedClock())) as loop, closing(Machine(loop)) as machine:
        yield machine


def test_the_format_of_the_directory_is_checked_before_the_store_is_opened(machine: Machine) -> None:
    machine.assemble()
    assert machine.events == ["store, after the format"]
    file = machine.disk.open("data/format")
    file.truncate(0)
    file.pwrite(b'{"format": 99}', 0)
    with pytest.raises(ConfigurationError, match="newer FlintMQ"):
        machine.assemble()
    assert len(machine.events) == 1


def test_logs_are_opened_after_the_partitions_can_be_looked_at(machine: Machine) -> None:
    core = machine.assemble()
    seen: list[tuple[bool, bool]] = []
    machine.disk.observer = lambda operation, path: machine.events.append(operation)
    machine.events.clear()

    def loading() -> None:
        seen.append((len(core.partitions) == 0, machine.events == []))

    assert machine.loop.run_until_complete(core.start(loading)) == []
    assert seen == [(True, True)]
    assert machine.events, "the directory was opened after that"


def test_housekeeping_runs_once_a_second_until_it_is_stopped(machine: Machine) -> None:
    core = machine.assemble()
    machine.loop.run_until_complete(core.start())
    core.on_tick = lambda: machine.events.append(f"{machine.loop.time():.0f}")
    machine.events.clear()
    core.start_housekeeping()
    machine.loop.advance(3.5)
    assert machine.events == ["1", "2", "3"]
    core.stop_housekeeping()
    machine.loop.advance(5)
    assert len(machine.events) == 3


def test_checkpoints_are_written_at_their_interval_and_after_a_failure_again(machine: Machine) -> None:
    core = machine.assemble()
    machine.loop.run_until_complete(core.start())
    written: list[int] = []
    failures = iter([OSError("full"), None, None])

    def checkpoint() -> None:
        written.append(round(machine.loop.time()))
        failure = next(failures)
        if failure is not None:
            raise failure

    core.log_dir.checkpoint = checkpoint  # type: ignore[method-assign]
    core.start_housekeeping()
    machine.loop.advance(3 * _CHECKPOINT_S + 0.5)
    assert written == [_CHECKPOINT_S, 2 * _CHECKPOINT_S, 3 * _CHECKPOINT_S]


def test_a_stop_leaves_the_marker_of_an_orderly_one_and_a_closed_store(machine: Machine) -> None:
    core = machine.assemble()
    machine.loop.run_until_complete(core.start())
    core.start_housekeeping()
    machine.loop.run_until_complete(core.stop())
    assert machine.disk.exists("data/clean-shutdown")
    core.on_tick = lambda: pytest.fail("housekeeping goes on")
    machine.loop.advance(3)
    again = machine.assemble()
    machine.loop.run_until_complete(again.start())
    assert again.metadata.image.cluster_id == core.metadata.image.cluster_id != ""


def test_a_single_broker_starts_without_the_modules_of_a_cluster() -> None:
    """Each of them is time at the start of every broker."""
    code = "import sys, flintmq.app.broker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "flintmq.app.assembly" in loaded
    assert not loaded & {
        "flintmq.app.broker_cluster",
        "flintmq.cluster.controller",
        "flintmq.partitions.replication.fetcher",
        "flintmq.partitions.replication.repairs",
    }
