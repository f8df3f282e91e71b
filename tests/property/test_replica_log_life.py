"""The life of a replica's log against a plain model (Z7, R1, S1): all that may happen to any log, and appends as
leader and as follower, with gaps, truncations at every point, restarts at an offset, a high watermark that lags.

What must hold is in `support.log.checks`, the steps are in `support.log.replica_machine`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flintmq.errors import CorruptionError, FlintError
from flintmq.partitions.maintenance import log_cleaner
from flintmq.storage.durability.flush import Flush
from flintmq.storage.durability.flusher import Flusher
from flintmq.storage.leader_epochs import LeaderEpochs
from flintmq.storage.log import Log
from flintmq.storage.segment import LOG, Segment
from flintmq.storage.truncation import truncation
from flintmq.storage.truncation.truncation import Truncation
from flintmq.storage.visibility import Visibility
from flintmq.testing.simulation import SimulatedDisk
from support.log.machine import explore
from support.log.replica_machine import ReplicaMachine


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every crash is logged, and there are thousands."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(300)
def test_a_replicas_log_holds_what_it_should_whatever_happens_to_it() -> None:
    explore(ReplicaMachine, 160, steps=50)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("block", range(4))
def test_the_same_over_many_more_lives(block: int) -> None:
    explore(ReplicaMachine, 1500, steps=60, is_random=True)


# -- the test can fail: what it says of code that is wrong


def _producers_stay_as_they_were(patch: pytest.MonkeyPatch) -> None:
    finish = Log.finish_truncation

    def careless(self: Log, truncation: Truncation, now_ms: int, error: BaseException | None = None) -> None:
        before = self.producers
        finish(self, truncation, now_ms, error)
        self.producers = before

    patch.setattr(Log, "finish_truncation", careless)


def _a_late_flush_raises_the_recovery_point(patch: pytest.MonkeyPatch) -> None:
    flushed = Log.flushed

    def careless(self: Log, flush: Flush, now_ms: int) -> None:
        flush.generation = self.generation
        flushed(self, flush, now_ms)

    done = Flusher._done

    def late(self: Flusher, work: Flush, error: BaseException | None, began: float) -> None:
        work.generation = self._log.generation
        done(self, work, error, began)

    patch.setattr(Log, "flushed", careless)
    patch.setattr(Flusher, "_done", late)


def _epochs_are_not_truncated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderEpochs, "truncate_from_end", lambda self, end_offset: None)


def _snapshots_above_are_kept(patch: pytest.MonkeyPatch) -> None:
    begin = Truncation.__init__

    def careless(self: Truncation, *args: Any, **named: Any) -> None:
        begin(self, *args, **{**named, "removed_snapshots": []})

    patch.setattr(Truncation, "__init__", careless)


def _checkpoints_are_believed(patch: pytest.MonkeyPatch) -> None:
    """They say that what came after a truncation was synced, if what was there before was."""
    patch.setattr(truncation, "write_note", lambda disk, directory, note: None)


def _the_size_is_not_noted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(truncation, "write_cut", lambda disk, segment: None)


def _ended_transactions_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    recover = Visibility.recover
    patch.setattr(
        Visibility, "recover", lambda self, high_watermark, end, ended: recover(self, high_watermark, end, ())
    )


def _compaction_goes_on(patch: pytest.MonkeyPatch) -> None:
    replace = Log.replace_segments
    patch.setattr(
        Log, "replace_segments", lambda self, swap, cleaned, _: replace(self, swap, cleaned, self.generation)
    )
    patch.setattr(log_cleaner, "_check_generation", lambda log, generation: None)


def _files_are_cut_in_place(patch: pytest.MonkeyPatch) -> None:
    """A reader may hold a range of what is cut off."""

    def careless(disk: SimulatedDisk, segment: Segment) -> None:
        disk.open(segment.path(LOG)).truncate(segment.size)

    patch.setattr(truncation, "write_cut", careless)


@pytest.mark.plain
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "mistake",
    [
        _producers_stay_as_they_were,
        _a_late_flush_raises_the_recovery_point,
        _epochs_are_not_truncated,
        _snapshots_above_are_kept,
        _checkpoints_are_believed,
        _the_size_is_not_noted,
        _ended_transactions_are_forgotten,
        _compaction_goes_on,
        _files_are_cut_in_place,
    ],
    ids=lambda mistake: mistake.__name__.strip("_"),
)
def test_wrong_code_is_found_out(mistake: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mistake(patch)
        with pytest.raises((AssertionError, CorruptionError, OSError, FlintError, ExceptionGroup)):
            explore(ReplicaMachine, 3000, steps=60, shrink=False)
