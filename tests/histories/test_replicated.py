"""Histories in replicated clusters of three and five brokers under random faults; each seed replays exactly.

Producers of all kinds, groups, read-process-write and readers of both isolation levels work while brokers die, lose
power, pause, are cut off, and while disks, clocks and the metadata store misbehave. In the end every partition must
have a leader and a full ISR, replicas must be the same bytes, and the checker must find no anomaly.

`FLINT_SEED=… pytest tests/histories/test_replicated.py -k default` runs one seed, with its logs. The long run takes
FLINT_SEEDS seeds from FLINT_FIRST_SEED on, and prints what it counted.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator

import pytest

from support.simulation.cluster_history import explore_cluster

_SEEDS, _SEEDS_PER_TEST = 200, 100
_FIRST_LONG_SEED, _SEEDS_LONG = 100_000, 1_000
_OPERATIONS_MIN = 300
_TIMEOUT_S, _TIMEOUT_S_LONG = 1_200, 86_400
_CHOSEN_SEED = os.environ.get("FLINT_SEED")
_MUST_HAPPEN = (
    "elections", "truncations", "ISR shrinks", "ISR expansions", "coordinator moves", "uncertain", "KillBroker",
    "power losses", "BlockLinks",
)  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disks that fail are reported, once for each request."""
    if _CHOSEN_SEED is None:
        logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _explore(first: int, count: int) -> None:
    counts: Counter[str] = Counter()
    seeds = range(first, first + count) if _CHOSEN_SEED is None else [int(_CHOSEN_SEED)]
    for seed in seeds:
        report = explore_cluster(seed, brokers=5 if seed % 4 == 3 else 3)
        assert report.counts["operations"] >= _OPERATIONS_MIN, f"FLINT_SEED={seed}: too little was done"
        counts += report.counts
    print(f"{len(seeds)} seeds from {seeds[0]} on, no anomaly")
    for name, number in sorted(counts.items()):
        print(f"{number:10} {name}")
    missing = [name for name in _MUST_HAPPEN if not counts[name]]
    assert _CHOSEN_SEED is not None or not missing, f"never in {count} seeds: {missing}"


@pytest.mark.timeout(_TIMEOUT_S)
@pytest.mark.parametrize("first", range(0, _SEEDS, _SEEDS_PER_TEST) if _CHOSEN_SEED is None else [0])
def test_acknowledged_records_survive_in_the_default_seeds(first: int) -> None:
    _explore(first, _SEEDS_PER_TEST)


@pytest.mark.long
@pytest.mark.timeout(_TIMEOUT_S_LONG)
def test_acknowledged_records_survive_in_many_seeds() -> None:
    first = int(os.environ.get("FLINT_FIRST_SEED", _FIRST_LONG_SEED))
    _explore(first, int(os.environ.get("FLINT_SEEDS", _SEEDS_LONG)))
