"""The life of a log, one step at a time, against a plain model (Z7, R1–R3): appends, reads, rolls, retention,
compaction, deletion, crashes of the process and of the machine at any change of the disk, and stops in between.

What must hold is in `support.log.checks`, the steps are in `support.log.machine`. Hypothesis chooses them, and
shrinks those that a failure needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import flintmq.partitions.maintenance.scrub as scrubbing_shell
from flintmq.errors import CorruptionError
from flintmq.partitions.maintenance import log_cleaner
from flintmq.partitions.maintenance.log_cleaner import LogCleaner
from flintmq.partitions.partition import Partition
from flintmq.records.compression import Codec
from flintmq.settings import TopicConfig
from flintmq.storage.scrub import ScrubResult, scrub
from flintmq.storage.segment import Segment
from support.log.life import LogLife
from support.log.machine import LogMachine, explore, only


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every crash is logged, and there are thousands."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(300)
def test_a_log_holds_what_it_should_whatever_happens_to_it() -> None:
    explore(LogMachine, 160, steps=50)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("block", range(4))
def test_the_same_over_many_more_lives(block: int) -> None:
    explore(LogMachine, 1500, steps=60, is_random=True)


# -- what it found once, in few steps


@pytest.mark.parametrize("seed", range(10))
def test_what_is_flushed_is_safe_while_a_new_start_is_not_yet_on_disk(seed: int) -> None:
    """R1: such a start is lost with the power, and the segments below it are back: all behind them is lost if these
    were not flushed too."""
    life = LogLife(TopicConfig(segment_bytes=400), seed=seed)
    for _ in range(12):
        life.append([(b"k", bytes(100))], producer_id=1, age_ms=0, codec=Codec.NONE)
    assert life.log.advance_start(7)
    life.partition.flush(lambda error: None)
    life.wait(0)
    assert life.log.recovery_point == 12
    life.crash(power=True)
    assert life.log.end_offset == 12
    life.end()


# -- the test can fail: what it says of code that is wrong


def _nothing_is_made_durable(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: LogCleaner, partition: Partition, end_offset: int) -> None:
        pass

    patch.setattr(LogCleaner, "_make_durable", nothing)


def _no_note_is_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_cleaner, "write_swap", lambda disk, folder, swap: None)


def _producers_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    job = LogCleaner._job
    patch.setattr(LogCleaner, "_job", lambda *args: replace(job(*args), producers={}))


def _an_active_segment_is_read_to_its_end(patch: pytest.MonkeyPatch) -> None:
    """Beyond the end that the log had when the reading was asked for."""

    def greedy(segment: Segment, position: int, *, size: int, **others: Any) -> ScrubResult:
        return scrub(segment, position, size=segment.size, **others)

    patch.setattr(scrubbing_shell, "scrub", greedy)


@pytest.mark.plain
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("spoil", "machine"),
    [
        (_nothing_is_made_durable, LogMachine),
        (_no_note_is_written, LogMachine),
        # Rare among all steps: only those that concern it.
        (_producers_are_forgotten, only("append", "append_many", "roll", "compact", "crash")),
        (
            _an_active_segment_is_read_to_its_end,
            only("append", "append_many", "verify", "step", "wait", "crash"),
        ),
    ],
)
def test_wrong_code_is_found_out(
    spoil: Callable[[pytest.MonkeyPatch], None], machine: type[LogMachine]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        spoil(patch)
        with pytest.raises((AssertionError, CorruptionError)):
            explore(machine, 3000, steps=60, shrink=False)
