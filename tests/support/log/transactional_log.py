"""A log in which transactions are begun and ended, on a simulated disk, for tests of the log alone."""

from __future__ import annotations

from typing import Any

from flintmq.records.batch import read_header
from flintmq.records.markers import Marker
from flintmq.records.record import build_batch
from flintmq.storage.aborted_transactions import AbortedTransaction
from flintmq.storage.log import Appended
from support.log.committed import read_committed
from support.log.on_simulated_disk import NOW_MS, Bench


class TransactionalBench(Bench):
    """Producers count for themselves. Nothing becomes visible by itself where `visible` is False."""

    def __init__(self, *, visible: bool = True, **settings: Any) -> None:
        self.visible = visible
        self._next: dict[int, tuple[int, int]] = {}
        super().__init__(**settings)

    def send(self, *values: bytes, producer: int = -1, size: int = 0) -> Appended:
        """One batch: of a transaction, if it is of a producer."""
        epoch, sequence = self._next.get(producer, (0, 0)) if producer >= 0 else (-1, -1)
        if producer >= 0:
            self._next[producer] = (epoch, sequence + len(values))
        batch = build_batch(
            [(value, value + bytes(size), NOW_MS + self.log.end_offset, ()) for value in values],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=producer >= 0,
        )
        view = memoryview(bytearray(batch))
        return self.log.append(
            view, read_header(view), leader_epoch=0, now_ms=NOW_MS, visible_at_once=self.visible
        )

    def end(self, producer: int, *, commit: bool, bumps_epoch: bool = True) -> int:
        """The marker's offset."""
        epoch, sequence = self._next.get(producer, (0, 0))
        if bumps_epoch:
            epoch, sequence = epoch + 1, 0
        self._next[producer] = (epoch, sequence)
        appended = self.log.append_marker(
            Marker(producer, epoch, coordinator_epoch=0, committed=commit),
            bumps_epoch=bumps_epoch,
            leader_epoch=0,
            now_ms=NOW_MS,
            visible_at_once=self.visible,
        )
        return appended.base_offset

    def send_control(self, producer: int, *, key: bytes) -> None:
        """A control batch that is no marker. What it does is looked at when the log is opened again."""
        batch = build_batch(
            [(key, b"", NOW_MS, ())],
            producer_id=producer,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )
        view = memoryview(bytearray(batch))
        unowned = read_header(view)._replace(producer_id=-1)
        self.log.append(view, unowned, leader_epoch=0, now_ms=NOW_MS, visible_at_once=self.visible)

    def commit(self, producer: int, **options: Any) -> int:
        return self.end(producer, commit=True, **options)

    def abort(self, producer: int, **options: Any) -> int:
        return self.end(producer, commit=False, **options)

    def roll(self) -> int:
        """The new segment's base offset."""
        return self.log.roll(NOW_MS).base_offset

    def aborted(self) -> dict[int, list[AbortedTransaction]]:
        """Of the segments that have any, by base offset."""
        return {segment.base_offset: segment.aborted for segment in self.log.segments if segment.aborted}

    def committed(self, offset: int | None = None, max_bytes: int = 1 << 30) -> list[bytes | None]:
        """The keys of committed records, which are the values that were sent."""
        return [record.key for record in read_committed(self.log, offset, max_bytes)]
