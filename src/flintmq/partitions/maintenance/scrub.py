"""The scrub: every sealed segment is read once in a while, slowly, and whatever is damaged is refused from then on.

A log that compaction or retention changes under it is taken up again where its offsets go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from flintmq.effects import Clock, Executor
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.partition import Partition
from flintmq.settings import BrokerConfig
from flintmq.storage.log import Log
from flintmq.storage.scrub import ScrubResult, scrub
from flintmq.storage.segment import Segment

logger = logging.getLogger(__name__)

_PIECE_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class ScrubPosition:
    """How far one log is read: within the segment at `base_offset`, or before the first that lies beyond it."""

    base_offset: int = -1
    position: int = 0
    next_offset: int = -1
    """The lowest offset that may come at `position`."""
    segment: Segment | None = None
    """The one that `position` is in: compaction puts another in its place, with the same base offset."""

    def begin(self, segment: Segment) -> None:
        self.base_offset, self.position, self.next_offset = segment.base_offset, 0, segment.base_offset
        self.segment = segment


class Scrubber:
    def __init__(
        self,
        partitions: LocalPartitions,
        *,
        clock: Clock,
        executor: Executor,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._partitions = partitions
        self._clock = clock
        self._executor = executor
        self._config = config
        self._waiting: list[Partition] = []
        self._place = ScrubPosition()
        self._round_began_ms: int | None = None
        self._stepped = clock.monotonic()
        self._credit = 0.0

    async def step(self) -> None:
        """Read as much as the rate allows since the last time; nothing between two rounds."""
        config, now = self._config(), self._clock.monotonic()
        rate = config.flint_scrub_bytes_per_second
        self._credit = min(self._credit + (now - self._stepped) * rate, float(rate))
        self._stepped = now
        if not self._waiting and not self._begin_round(config.flint_scrub_interval_ms):
            return
        while self._waiting and self._credit > 0:
            partition = self._waiting[-1]
            if partition.deleted or partition.log.offline is not None:
                self._next()
                continue
            piece = int(min(_PIECE_BYTES, max(self._credit, 1)))
            try:
                read = await scrub_piece(partition.log, self._place, piece, self._executor)
            except OSError as error:
                # Said once a round; whoever wants these records is told by the same disk.
                logger.error("a segment of %s cannot be read: %s", partition.log.name, error)
                self._place = ScrubPosition(self._place.base_offset + 1)
                continue
            if read is None:
                self._next()
            else:
                self._credit -= max(read.size, 1)
                partition.log.counters.scrubbed_bytes += read.size

    def _begin_round(self, interval_ms: int) -> bool:
        now_ms = self._clock.now_ms()
        if self._round_began_ms is None or now_ms < self._round_began_ms:
            # The first round comes after an interval too: a broker that is started has other things to read.
            self._round_began_ms = now_ms
        if now_ms - self._round_began_ms < interval_ms:
            return False
        self._round_began_ms = now_ms
        self._waiting = [one for one in self._partitions if len(one.log.segments) > 1]
        return bool(self._waiting)

    def _next(self) -> None:
        self._waiting.pop()
        self._place = ScrubPosition()


class ScrubChunk(NamedTuple):
    size: int
    records: int


_NOTHING = ScrubChunk(0, 0)


async def scrub_piece(
    log: Log, place: ScrubPosition, limit: int, executor: Executor, *, with_active: bool = False
) -> ScrubChunk | None:
    """Read on from `place`; what was read, or None at the end of what is sealed."""
    segments = log.segments if with_active else log.segments[:-1]
    at = next((at for at, one in enumerate(segments) if one.base_offset >= place.base_offset), None)
    if at is None or not log.is_created:
        return None
    segment = segments[at]
    following = log.segments[at + 1].base_offset if at + 1 < len(log.segments) else log.end_offset
    if segment is not place.segment:
        place.begin(segment)
    position = place.position
    try:
        # ORDER: size and end are taken in one step, for records are appended while the thread reads.
        check = partial(
            scrub,
            segment,
            position,
            size=segment.size,
            expected=place.next_offset,
            end_offset=following,
            limit=limit,
        )
        found: ScrubResult = await executor.run(check)
    except OSError:
        if not segment.removed:
            raise
        return _NOTHING  # taken away or compacted: its place is looked up anew
    if segment.removed:
        return _NOTHING
    if found.damage is not None:
        log.add_corrupt(found.damage)
    place.position, place.next_offset = found.position, found.next_offset
    if found.position >= segment.size:
        place.base_offset, place.segment = segment.base_offset + 1, None
    return ScrubChunk(found.position - position, found.records)


async def verify_log(
    partition: Partition, executor: Executor, note: Callable[[int, int], object]
) -> ScrubChunk:
    """The same for one whole log at full speed. The damage that there is stands in its `corrupt` afterwards."""
    log, place, size, records = partition.log, ScrubPosition(), 0, 0
    total, end_offset = log.size, log.end_offset
    while not partition.deleted and place.base_offset < end_offset:
        read = await scrub_piece(log, place, _PIECE_BYTES, executor, with_active=True)
        if read is None:
            break
        size, records = size + read.size, records + read.records
        note(size, max(total, size))
    return ScrubChunk(size, records)
