"""Sends the markers of a decided transaction to its partitions, until each has one or is gone.

A transaction may touch thousands of partitions: their markers are written some hundred in a turn of the loop, the
first of them in the step in which it is begun. What a partition does not take is tried again, all of them together
once a second. Invariant: `ended` is called once, with True when every partition has its marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from flintmq.coordinator.transactions.decision import MarkerWork
from flintmq.coordinator.transactions.marker_writer import MarkerWriter
from flintmq.effects import Timers
from flintmq.errors import ErrorCode
from flintmq.records.markers import Marker
from flintmq.records.topic_partition import TopicPartition

logger: Final = logging.getLogger(__name__)

MARKERS_PER_TURN: Final = 100
_RETRY_S: Final = 1.0
# What a partition that is past the transaction says to its marker: it needs none.
_NEEDS_NONE: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH)


class MarkerSender:
    def __init__(
        self,
        work: MarkerWork,
        markers: MarkerWriter,
        timers: Timers,
        *,
        goes_on: Callable[[], bool],
        ended: Callable[[MarkerSender, bool], object],
        markers_per_turn: int = MARKERS_PER_TURN,
    ) -> None:
        """`goes_on` is false once the decision is no longer this broker's to carry out."""
        self.work = work
        self.unwritten = set(work.partitions)
        self._marker = Marker(work.producer_id, work.producer_epoch, work.coordinator_epoch, work.committed)
        self._markers = markers
        self._timers = timers
        self._goes_on = goes_on
        self._ended = ended
        self._markers_per_turn = markers_per_turn
        self._is_over = False
        # Those that did not take it, for the next try.
        self._failed: list[TopicPartition] = []

    def begin(self) -> None:
        if self.unwritten:
            self._send(self.work.partitions)
        else:
            self._end(True)

    def _send(self, partitions: Sequence[TopicPartition]) -> None:
        if not self._may_go_on():
            return
        for partition in partitions[: self._markers_per_turn]:
            self._markers.write(
                *partition,
                self._marker,
                transaction_version=self.work.transaction_version,
                done=partial(self._written, partition),
            )
        if len(partitions) > self._markers_per_turn:
            self._timers.call_soon(self._send, partitions[self._markers_per_turn :])

    def _written(self, partition: TopicPartition, code: ErrorCode) -> None:
        if code in _NEEDS_NONE or self._is_past(partition, code):
            self.unwritten.discard(partition)
            if not self.unwritten:
                self._end(True)
        elif self._may_go_on():
            self._markers.counters.markers_retried += 1
            if not self._failed:
                logger.warning(
                    "%s-%d, perhaps with others, takes no marker of %s: %s",
                    *partition,
                    self.work.transactional_id,
                    code.name,
                )
                self._timers.call_later(_RETRY_S, self._try_again)
            self._failed.append(partition)

    def _is_past(self, partition: TopicPartition, code: ErrorCode) -> bool:
        """An operator's marker may name a later coordinator. That is the end only where it ended something: who
        takes it for one leaves what is open there open for ever."""
        return code is ErrorCode.TRANSACTION_COORDINATOR_FENCED and not self._markers.is_awaited(
            *partition, self.work.producer_id
        )

    def _try_again(self) -> None:
        partitions, self._failed = self._failed, []
        self._send(partitions)

    def _may_go_on(self) -> bool:
        if not self._goes_on():
            self._end(False)
        return not self._is_over

    def _end(self, is_complete: bool) -> None:
        if not self._is_over:
            self._is_over = True
            self._ended(self, is_complete)
