"""Histories in simulated clusters: topics of one replica under every fault, each seed a run that replays exactly.

Records are synced before they are acknowledged, so none may be lost. That the checks can fail is shown with brokers
that do not sync. `FLINT_SEED=… pytest tests/histories/test_simulated.py -k nothing` runs one seed, with its logs.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from flintmq.testing.simulation.fault_schedule import random_schedule
from support.histories.checker import Kind
from support.simulation.workload import explore, run_history

_SEEDS, _SEEDS_LONG = 12, 600
_DURATION_S = 6.0
_CHOSEN_SEED = os.environ.get("FLINT_SEED")
_UNSYNCED = {"flush.messages": "1000000"}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disks that fail are reported, once for each request."""
    if _CHOSEN_SEED is None:
        logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _explore(first: int, count: int, *, brokers: int, shared_store: bool) -> Counter[str]:
    counts: Counter[str] = Counter()
    seeds = range(first, first + count) if _CHOSEN_SEED is None else [int(_CHOSEN_SEED)]
    for seed in seeds:
        report = explore(seed, brokers=brokers, shared_store=shared_store, duration_s=_DURATION_S, count=8)
        assert report.acknowledged > 30
        counts += report.counts
    print(dict(counts))
    return counts


def _check(counts: Counter[str], *faults: str) -> None:
    missing = [fault for fault in faults if not counts[fault]]
    assert _CHOSEN_SEED is not None or not missing, f"never in {_SEEDS} seeds: {missing}"


def test_one_broker_with_its_own_store_loses_nothing() -> None:
    counts = _explore(0, _SEEDS, brokers=1, shared_store=False)
    _check(counts, "KillBroker", "CutPower", "PauseBroker", "FailDisk", "FillDisk", "SlowDisk", "BlockLinks")


def test_brokers_on_a_shared_store_lose_nothing() -> None:
    counts = _explore(1000, _SEEDS, brokers=3, shared_store=True)
    _check(counts, "KillBroker", "CutPower", "BlockLinks", "JumpClock", "CompactStore", "FailTransaction")


@pytest.mark.long
@pytest.mark.parametrize(("brokers", "shared_store"), [(1, False), (1, True), (3, True)])
def test_many_seeds(brokers: int, shared_store: bool) -> None:
    _explore(10_000, _SEEDS_LONG, brokers=brokers, shared_store=shared_store)


def test_records_that_are_not_synced_are_lost_and_the_schedule_is_shrunk(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A power loss alone does it: all other faults are left out of what is reported."""
    run = partial(run_history, configs=_UNSYNCED)
    for seed in range(40):
        if not any("CutPower" in repr(fault) for fault in random_schedule(seed, brokers=[1], duration_s=6.0)):
            continue
        try:
            explore(seed, shared_store=False, duration_s=6.0, run=run)
        except AssertionError as error:
            text = str(error)
            break
    else:
        pytest.fail("no seed found that records were lost")
    print(text)
    faults = text.partition("with these faults:\n")[2].splitlines()
    assert len(faults) == 1
    assert faults[0].startswith("  CutPower(at_s=")
    assert any(
        kind.value in text for kind in (Kind.LOST_WRITE, Kind.UNSEEN_AT_THE_END, Kind.INCONSISTENT_OFFSETS)
    )
    assert f"FLINT_SEED={seed}" in capsys.readouterr().out
