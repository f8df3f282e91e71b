"""A seed replays a whole cluster, in this process and in another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flintmq.testing.simulation.client import WorldClient, WorldProducer
from flintmq.testing.simulation.world import World
from support.simulation.workload import explore

_TESTS = Path(__file__).resolve().parents[3]
_SEEDS = (3, 8)
_PROGRAM = """
import logging, sys
logging.disable(logging.CRITICAL)
from support.simulation.workload import explore
for seed in map(int, sys.argv[1:]):
    report = explore(seed, brokers=2, duration_s=6.0, count=8)
    print(report.digest, len(report.history))
"""


def _lines(seeds: tuple[int, ...], hash_seed: str) -> list[str]:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join([str(_TESTS), *sys.path]),
    }
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *map(str, seeds)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in ran.stdout.splitlines() if not line.startswith("FLINT_SEED")]


@pytest.mark.parametrize("shared_store", [True, False])
def test_a_seed_replays_exactly(shared_store: bool) -> None:
    for seed in _SEEDS:
        first, second = (
            explore(seed, brokers=2, shared_store=shared_store, duration_s=6.0, count=8) for _ in range(2)
        )
        assert first.digest == second.digest
        assert first.history == second.history
        assert first.acknowledged > 50


def test_a_seed_replays_exactly_in_other_processes() -> None:
    first = _lines(_SEEDS, "0")
    assert len(first) == len(_SEEDS)
    assert len(set(first)) == len(_SEEDS), "other seeds are other runs"
    assert first == _lines(_SEEDS, "0")


def test_seeds_differ_in_the_order_of_turns_alone() -> None:
    def digest(seed: int) -> str:
        with World(seed, brokers=2) as world:
            world.start()
            return world.trace.digest()

    assert len({digest(seed) for seed in range(5)}) == 5


def test_time_passes_only_when_nobody_has_anything_to_do() -> None:
    with World(1, brokers=1) as world:
        world.start()
        client = WorldClient(world, "client")
        world.run_until(world.clients.spawn(client.create_topic("t")))
        began_s = world.timeline.now_s
        assert world.run_until(world.clients.spawn(WorldProducer(client).send("t", 0, [b"x"]))) == 0
        assert 0 < world.timeline.now_s - began_s < 0.1
        world.run_for(3_600.0)
        assert world.timeline.now_s > 3_600


def test_a_world_leaves_nothing_behind(recwarn: pytest.WarningsRecorder) -> None:
    with World(1, brokers=2) as world:
        world.start()
        world.brokers[1].kill()
        world.run_for(1.0)
        world.clients.spawn(WorldClient(world, "client").create_topic("t"))
        processes = [process for process, _ in world._processes]
    assert all(process.loop.is_closed() for process in processes)
    assert not [str(warning.message) for warning in recwarn]
