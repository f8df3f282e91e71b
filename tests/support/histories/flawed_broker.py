"""FlintMQ with one mistake in it, for the tests of the checker: `python -m support.histories.flawed_broker serve …`.

The environment's FLAW names the mistake. Internal topics are spared, so that the broker works as well as it can.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flintmq.cli.main import main
from flintmq.coordinator.groups import offset_commits
from flintmq.coordinator.groups.machine import GroupMachine
from flintmq.coordinator.transactions.marker_writer import Done, MarkerWriter
from flintmq.errors import ErrorCode, RequestError
from flintmq.partitions.partition import Partition
from flintmq.records.batch import NO_PRODUCER_ID, BatchHeader, read_header
from flintmq.records.markers import Marker
from flintmq.storage import reader
from flintmq.storage.log import Appended, Log
from flintmq.storage.segment import FileRange
from flintmq.storage.visibility import Isolation

FLAW = "FLAW"
_SPARED = "__"
_MARKERS_WRITTEN = 5
_BATCHES_CUT = 5


def answers_without_writing() -> None:
    append, count = Log.append, itertools.count(1)

    def careless(self: Log, batch: memoryview, header: BatchHeader, **options: Any) -> Appended:
        told = self.end_offset - 1 - header.last_offset_delta
        if (
            _is_data(self, header)
            and told >= 0
            and self.producers.check(header) is None
            and next(count) % 40 == 0
        ):
            self.producers.record(header, told)
            return Appended(told, self.end_offset - 1, -1)
        return append(self, batch, header, **options)

    Log.append = careless  # type: ignore[method-assign]


def writes_twice() -> None:
    append, count = Log.append, itertools.count(1)

    def careless(self: Log, batch: memoryview, header: BatchHeader, **options: Any) -> Appended:
        appended = append(self, batch, header, **options)
        if _is_data(self, header) and next(count) % 40 == 0:
            append(self, batch, header._replace(producer_id=NO_PRODUCER_ID), **options)
        return appended

    Log.append = careless  # type: ignore[method-assign]


def tells_wrong_offsets() -> None:
    append, count = Partition.append, itertools.count(1)

    def careless(self: Partition, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        appended = append(self, batch, header, now_ms)
        if _is_data(self.log, header) and next(count) % 40 == 0:
            appended.base_offset = max(0, appended.base_offset - 30)
        return appended

    Partition.append = careless  # type: ignore[method-assign]


def cuts_logs_at_the_start() -> None:
    """As if it had acknowledged what it held in memory only."""
    folder = sys.argv[sys.argv.index("--data-dir") + 1]
    for file in sorted(Path(folder).glob("*/*.log")):
        if file.parent.name.startswith(_SPARED) or file != max(file.parent.glob("*.log")):
            continue
        data, positions = memoryview(file.read_bytes()), [0]
        while positions[-1] < len(data):
            positions.append(positions[-1] + read_header(data, positions[-1]).size)
        os.truncate(file, positions[max(0, len(positions) - 1 - _BATCHES_CUT)])


def shows_open_transactions() -> None:
    Log.last_stable_offset = Log.high_watermark  # type: ignore[method-assign]


def forgets_aborted_transactions() -> None:
    reader.aborted_transactions = lambda log, found, offset: []


def aborts_in_one_partition() -> None:
    write, count = MarkerWriter.write, itertools.count(1)

    def careless(
        self: MarkerWriter, topic: str, index: int, marker: Marker, *, transaction_version: int, done: Done
    ) -> None:
        if not topic.startswith(_SPARED) and next(count) % 5 == 0:
            marker = marker._replace(committed=False)
        write(self, topic, index, marker, transaction_version=transaction_version, done=done)

    MarkerWriter.write = careless  # type: ignore[method-assign]


def leaves_out_markers() -> None:
    write, count = MarkerWriter.write, itertools.count(1)

    def careless(
        self: MarkerWriter, topic: str, index: int, marker: Marker, *, transaction_version: int, done: Done
    ) -> None:
        if index == 1 and not topic.startswith(_SPARED) and next(count) > _MARKERS_WRITTEN:
            done(ErrorCode.NONE)
        else:
            write(self, topic, index, marker, transaction_version=transaction_version, done=done)

    MarkerWriter.write = careless  # type: ignore[method-assign]


def skips_batches() -> None:
    read, count = reader.read, itertools.count(1)

    def careless(
        log: Log, offset: int, max_bytes: int, isolation: Isolation, **options: Any
    ) -> FileRange | None:
        if (
            not log.topic.startswith(_SPARED)
            and offset + 8 < log.last_stable_offset
            and next(count) % 10 == 0
        ):
            offset += 8
        return read(log, offset, max_bytes, isolation, **options)

    reader.read = careless


def sends_readers_back() -> None:
    read, count = reader.read, itertools.count(1)

    def careless(
        log: Log, offset: int, max_bytes: int, isolation: Isolation, **options: Any
    ) -> FileRange | None:
        if not log.topic.startswith(_SPARED) and offset > 0 and next(count) % 100 == 0:
            raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return read(log, offset, max_bytes, isolation, **options)

    reader.read = careless


def does_not_keep_offsets() -> None:
    commit = offset_commits.commit
    offset_commits.commit = lambda *asked: ([], commit(*asked)[1])


def drops_offsets_of_transactions() -> None:
    end = GroupMachine.end_transaction

    def careless(self: GroupMachine, producer_id: int, offset: int, *, committed: bool) -> None:
        end(self, producer_id, offset, committed=False)

    GroupMachine.end_transaction = careless  # type: ignore[method-assign]


def _is_data(log: Log, header: BatchHeader) -> bool:
    return header.producer_id != NO_PRODUCER_ID and not log.topic.startswith(_SPARED)


FLAWS: dict[str, Callable[[], None]] = {
    flaw.__name__: flaw
    for flaw in (
        answers_without_writing,
        writes_twice,
        tells_wrong_offsets,
        cuts_logs_at_the_start,
        shows_open_transactions,
        forgets_aborted_transactions,
        aborts_in_one_partition,
        leaves_out_markers,
        skips_batches,
        sends_readers_back,
        does_not_keep_offsets,
        drops_offsets_of_transactions,
    )
}

if __name__ == "__main__":
    FLAWS[os.environ[FLAW]]()
    main(prog_name="flintmq")
