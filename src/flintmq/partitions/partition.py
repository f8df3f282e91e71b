"""A partition that this broker leads: its log, its epoch, who waits for what.

Decides when records become visible: the high watermark follows the log's end, or, with
`flush.messages=1`, what is on stable storage. Appending wakes the readers that wait, on the next turn of the
loop, so that a burst of appends wakes them once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from flintmq.effects import Clock, Executor, Timers
from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata.image import is_internal
from flintmq.records.batch import (
    LOG_APPEND_TIME,
    BatchHeader,
    check_produced,
    read_header,
    set_append_time,
    set_create_time,
)
from flintmq.records.compression import Codec
from flintmq.records.limits import VALIDATED_BYTES_MAX
from flintmq.records.markers import Marker
from flintmq.records.record import check_records, payload_of, with_payload
from flintmq.settings import TopicConfig
from flintmq.storage.durability.flusher import Done, Flusher
from flintmq.storage.log import Appended, Log

_FOREVER: Final = 1 << 62
# More than anybody waits for.
_UNCOUNTED: Final = 1 << 62


class AppendListener(Protocol):
    """Someone who waits for records."""

    def records_arrived(self, partition: Partition, size: int) -> None:
        """About `size` more bytes are visible; 0 if the partition is gone."""
        ...


class Partition:
    __slots__ = (
        "_after_max_ms",
        "_append_time",
        "_arrived",
        "_before_max_ms",
        "_check_keys",
        "_clock",
        "_codec",
        "_deep",
        "_durable",
        "_flusher",
        "_readers",
        "_timers",
        "_waiting",
        "_waking",
        "deleted",
        "index",
        "is_internal",
        "isr",
        "leader_epoch",
        "log",
        "topic",
        "topic_id",
    )  # fmt: skip

    def __init__(
        self, log: Log, *, leader_epoch: int, isr: list[int], clock: Clock, timers: Timers, executor: Executor
    ) -> None:
        self.topic = log.topic
        self.topic_id = log.topic_id
        self.index = log.partition
        self.is_internal = is_internal(log.topic)
        self.log = log
        self.leader_epoch = leader_epoch
        self.isr = isr
        self.deleted = False
        self._clock = clock
        self._timers = timers
        self._flusher = Flusher(log, executor=executor, clock=clock, flushed=self._flushed)
        self._readers: dict[AppendListener, None] = {}
        # Acknowledgements that wait for the high watermark: (offset that must be below it, what to call).
        self._waiting: list[tuple[int, Callable[[str | None], object]]] = []
        self._arrived = 0
        self._waking = False
        self.configure(log.config)

    def configure(self, config: TopicConfig) -> None:
        """Take a new configuration; what was written stays as it is."""
        self.log.configure(config)
        self._durable = config.flush_messages == 1
        self._append_time = config.message_timestamp_type == "LogAppendTime"
        # How far the timestamps of producers may be from now.
        self._before_max_ms = _FOREVER if self._append_time else config.message_timestamp_before_max_ms
        self._after_max_ms = _FOREVER if self._append_time else config.message_timestamp_after_max_ms
        self._codec = _target_codec(config.compression_type)
        self._check_keys = "compact" in config.cleanup_policy
        self._deep = self._check_keys or config.flint_validate_records == "deep"
        if not self._durable:
            self._arrived = _UNCOUNTED
            self._advance(self.log.end_offset)

    # ---- writing

    def check(self, records: memoryview, now_ms: int, *, zstd_allowed: bool = True) -> BatchHeader:
        """Refuse what is not one sound batch for this topic."""
        return check_produced(
            records,
            self.log.config.max_message_bytes,
            zstd_allowed,
            now_ms - self._before_max_ms,
            now_ms + self._after_max_ms,
        )

    @property
    def requires_validation(self) -> bool:
        """Whether `must_validate` can be true of any batch."""
        return self._deep or self._codec is not None

    def must_validate(self, header: BatchHeader) -> bool:
        """Whether the topic wants the records themselves looked at, or compressed otherwise."""
        return self._deep or (self._codec is not None and self._codec != header.codec)

    def validate_batch(self, batch: bytes, header: BatchHeader) -> bytes:
        """The batch checked record by record, and recompressed if need be. Slow: for a thread."""
        config = self.log.config
        payload = payload_of(batch, limit=VALIDATED_BYTES_MAX)
        now_ms = self._clock.now_ms()
        check_records(
            payload,
            header.record_count,
            base_timestamp=header.base_timestamp,
            require_keys=self._check_keys,
            earliest_ms=now_ms - self._before_max_ms,
            latest_ms=now_ms + self._after_max_ms,
        )
        codec = self._codec
        if codec is None or codec == header.codec:
            return batch
        levels = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }
        rebuilt = with_payload(header, payload, codec, levels.get(codec))
        if len(rebuilt) > config.max_message_bytes:
            raise RequestError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The batch has {len(rebuilt)} bytes once compressed as the topic wants it; "
                f"it takes up to {config.max_message_bytes}.",
            )
        return rebuilt

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        """Write a checked batch. It may be acknowledged once `is_visible(last_offset)`."""
        if self._append_time:
            set_append_time(batch, header.attributes, now_ms)
            header = read_header(batch)
        elif header.attributes & LOG_APPEND_TIME:
            set_create_time(batch, header.attributes)
            header = read_header(batch)
        log = self.log
        visible = not self._durable
        appended = log.append(
            batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms, visible_at_once=visible
        )
        if visible:
            self._arrived += len(batch)
            if self._readers or self._waiting:
                self._became_visible()
        self._flusher.after_append()
        return appended

    def append_marker(self, marker: Marker, now_ms: int, *, bumps_epoch: bool) -> Appended:
        """Write the end of a transaction."""
        visible = not self._durable
        appended = self.log.append_marker(
            marker,
            bumps_epoch=bumps_epoch,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            visible_at_once=visible,
        )
        if visible:
            # What was held back for readers of committed records may be much more than the marker.
            self._arrived = _UNCOUNTED
            self._became_visible()
        self._flusher.after_append()
        return appended

    def is_visible(self, offset: int) -> bool:
        return offset < self.log.high_watermark

    def when_visible(self, offset: int, call: Callable[[str | None], object]) -> None:
        """Call with None once `offset` is below the high watermark, or with the reason why it never will be."""
        if self.log.offline is not None:
            # The flush that the append began has failed already: no other will come.
            self._timers.call_soon(call, self.log.offline)
            return
        self._waiting.append((offset, call))

    def _advance(self, offset: int) -> None:
        if self.log.advance(offset):
            self._became_visible()

    def _became_visible(self) -> None:
        if self._readers and not self._waking:
            self._waking = True
            self._timers.call_soon(self._wake)
        if self._waiting:
            self._acknowledge(None)

    def _acknowledge(self, failure: str | None) -> None:
        waiting, self._waiting = self._waiting, []
        high_watermark = self.log.high_watermark
        for offset, call in waiting:
            if failure is not None or offset < high_watermark:
                call(failure)
            else:
                self._waiting.append((offset, call))

    def _flushed(self) -> None:
        if self.log.offline is not None:
            self._acknowledge(self.log.offline)
            self._wake()
        elif self._durable:
            # What a flush makes visible was appended earlier, when others were woken: all look for themselves.
            self._arrived = _UNCOUNTED
            self._advance(self.log.recovery_point)

    def flush(self, done: Done) -> None:
        """All that was written by now, to stable storage; `done` is called with None, or with why it is not there."""
        self._flusher.flush(done)

    def flush_if_due(self, now_ms: int) -> None:
        self._flusher.flush_if_due(now_ms)

    # ---- readers

    def park(self, reader: AppendListener) -> None:
        self._readers[reader] = None

    def unpark(self, reader: AppendListener) -> None:
        self._readers.pop(reader, None)

    def _wake(self) -> None:
        self._waking = False
        arrived, self._arrived = self._arrived, 0
        for reader in list(self._readers):
            reader.records_arrived(self, arrived)

    def close(self) -> None:
        """The partition is no longer served here: nobody waits in vain."""
        self.deleted = True
        self._acknowledge("the partition is no longer here")
        for reader in list(self._readers):
            reader.records_arrived(self, 0)
        self._readers.clear()


def _target_codec(name: str) -> Codec | None:
    """None keeps the producer's own."""
    if name == "producer":
        return None
    return Codec.NONE if name == "uncompressed" else Codec[name.upper()]
