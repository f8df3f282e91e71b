"""Compaction by the real driver and a simulated child process."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.app.compaction_process import WORKER_MODULE
from flintmq.effects import Subprocess
from flintmq.records.record import build_batch
from flintmq.testing.simulation import SimulatedDisk, SimulatedSubprocess
from flintmq.testing.simulation.client import ACKS_ALL, WorldClient
from flintmq.testing.simulation.subprocess import COMPACTION_WORKER
from flintmq.testing.simulation.world import World

_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1024",
    "min.cleanable.dirty.ratio": "0.01",
}
_SETTINGS = {"log.cleaner.backoff.ms": "1000"}


def test_the_simulated_worker_is_the_one_that_the_broker_starts() -> None:
    assert COMPACTION_WORKER == WORKER_MODULE


@pytest.mark.parametrize("killed_after_lines", [None, 0, 1, 2])
def test_a_log_is_compacted_though_a_child_is_killed(killed_after_lines: int | None) -> None:
    with World(4, brokers=1, settings=_SETTINGS) as world:
        world.start()
        node, client = world.brokers[1], WorldClient(world, "client")
        subprocess = node.subprocess
        assert subprocess is not None
        effect: Subprocess = subprocess
        assert effect is not None
        world.run_until(world.clients.spawn(client.create_topic("t", configs=_COMPACTED)))
        if killed_after_lines is not None:
            subprocess.kill_next(after_lines=killed_after_lines)

        async def write() -> None:
            for n in range(60):
                batch = build_batch([(b"key", b"%d" % n + b"." * 80, client.now_ms(), ())])
                await client.produce("t", 0, batch, acks=ACKS_ALL)
                await asyncio.sleep(0.05)

        world.run_until(world.clients.spawn(write()))
        assert node.core is not None
        log = node.core.log_dir.logs["t", 0]
        world.run_until_true(lambda: log.size < 4096, within_s=60)
        assert log.end_offset == 60


def test_a_child_that_was_killed_says_so() -> None:
    class Inline:
        def submit(self, work: object, done: object) -> None:
            raise AssertionError

        def run(self, work: object, *args: object) -> asyncio.Future[None]:
            raise AssertionError("a killed child works no more")

    async def scenario() -> None:
        subprocess = SimulatedSubprocess(SimulatedDisk(1), Inline())  # type: ignore[arg-type]
        subprocess.kill_next(after_lines=0)
        child = await subprocess.start(WORKER_MODULE)
        await child.write(
            b'{"directory":"d","segments":[],"first_dirty_offset":0,"end_offset":0,"now_ms":0,'
            b'"delete_retention_ms":0,"segment_bytes":1,"segment_index_bytes":1,"index_interval_bytes":1,'
            b'"dedupe_bytes":1024}\n'
        )
        assert await child.read_line() == b""
        assert await child.wait() == -9
        with pytest.raises(BrokenPipeError):
            await child.write(b"\n")

    asyncio.run(scenario())
