"""Logs after power loss, kills and failing disks, over thousands of seeded crashes (R1, R2, R4, R8).

What must hold is in `support.log.checks`, what happens in `support.log.world`. A failure names its seed;
`FLINT_SEED=… pytest tests/crash/test_log_crashes.py -k promised` runs that one alone, with its logs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator

import pytest

import flintmq.storage.recovery.segment_scan
from flintmq.partitions.partition import Partition
from flintmq.records.batch import BatchHeader
from flintmq.settings import TopicConfig
from flintmq.storage.durability.flush import Flush, SealedSegment
from flintmq.storage.log_dir import LogDir
from flintmq.storage.producer_state import ProducerBatch, ProducerState
from flintmq.storage.recovery.log_loader import LogLoader
from flintmq.testing.simulation import SimulatedDisk, SimulatedFile
from support.log.world import explore

SEEDS_PER_BLOCK = 3
CHOSEN_SEED = os.environ.get("FLINT_SEED")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every crash is logged, and there are thousands."""
    if CHOSEN_SEED is None:
        logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def explore_or_name_the_seed(seed: int) -> int:
    try:
        return explore(seed)
    except Exception as error:
        raise AssertionError(f"FLINT_SEED={seed}: {error!r}") from error


def seeds_of(block: int) -> list[int]:
    if CHOSEN_SEED is not None:
        return [int(CHOSEN_SEED)]
    return list(range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK))


@pytest.mark.parametrize("block", range(4 if CHOSEN_SEED is None else 1))
def test_no_crash_loses_what_was_promised_or_brings_back_what_was_not(block: int) -> None:
    seeds = seeds_of(block)
    crashes = sum(explore_or_name_the_seed(seed) for seed in seeds)
    assert crashes > 150 * len(seeds) or len(seeds) == 1


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("block", range(4, 184))
def test_the_same_over_many_more_seeds(block: int) -> None:
    for seed in seeds_of(block):
        explore_or_name_the_seed(seed)


# -- the test can fail: what it would say of code that is wrong


def _data_is_never_synced(patch: pytest.MonkeyPatch) -> None:
    sync = SimulatedFile.sync
    patch.setattr(SimulatedFile, "sync", lambda self: None if self.path.endswith(".log") else sync(self))


def _folders_are_never_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDisk, "sync_dir", lambda self, path: None)


def _crcs_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(flintmq.storage.recovery.segment_scan, "crc_is_right", lambda batch, crc: True)


def _acknowledged_before_the_fsync(patch: pytest.MonkeyPatch) -> None:
    configure = Partition.configure

    def careless(self: Partition, config: TopicConfig) -> None:
        configure(self, config)
        self._durable = False

    patch.setattr(Partition, "configure", careless)


def _served_after_a_kill_without_a_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogLoader, "make_durable", lambda self, log: None)


def _starts_of_logs_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogDir, "checkpoint_starts", lambda self: None)


def _lines_outlive_their_topic(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogDir, "_forget", lambda self, keys: None)


def _sealed_segments_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    sync = Flush._sync_sealed

    def careless(self: Flush, sealed: SealedSegment) -> None:
        with patch.context() as inner:
            inner.setattr(SimulatedFile, "sync", lambda self: None)
            sync(self, sealed)

    patch.setattr(Flush, "_sync_sealed", careless)


def _retries_are_not_known(patch: pytest.MonkeyPatch) -> None:
    check = ProducerState.check

    def forgetful(self: ProducerState, batch: BatchHeader) -> ProducerBatch | None:
        known = check(self, batch)
        return None if known is not None and known.first_offset % 5 == 0 else known

    patch.setattr(ProducerState, "check", forgetful)


@pytest.mark.plain
@pytest.mark.parametrize(
    "mistake",
    [
        _data_is_never_synced,
        _folders_are_never_synced,
        _crcs_are_not_checked,
        _acknowledged_before_the_fsync,
        _served_after_a_kill_without_a_sync,
        _starts_of_logs_are_not_kept,
        _lines_outlive_their_topic,
        _sealed_segments_are_not_synced,
        _retries_are_not_known,
    ],
    ids=lambda mistake: mistake.__name__.strip("_"),
)
def test_a_mistake_is_found_out(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match=r"FLINT_SEED=\d+: AssertionError"):
        sum(explore_or_name_the_seed(seed) for seed in range(60))
