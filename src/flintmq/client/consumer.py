"""Reading one topic's partitions from given offsets on, without a group.

    consumer = Consumer(client, topic, {0: 0, 1: 17})
    for partition, record in consumer.poll(): …

Invariant: `positions` is the offset of the next record of each partition, and moves only past what `poll`
has returned. A partition whose records were deleted under the reader goes on at its new start, and the gap
is told to `on_gap`. With `read_committed`, records of transactions that were aborted are passed over, and
those behind one that is open are waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from flintmq.client.admin.topics import EARLIEST, LATEST, offsets
from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import ClientError, check, may_pass
from flintmq.client.fetched_records import read_batches
from flintmq.client.metadata import TopicMetadata
from flintmq.client.retries import RETRIABLE
from flintmq.errors import CorruptionError, ErrorCode, FlintError, RequestError
from flintmq.protocol.messages import FetchRequest, FetchResponse
from flintmq.records.read_committed import ReadCommittedFilter
from flintmq.records.record import Record

MAX_WAIT_MS: Final = 500
PARTITION_BYTES: Final = 1024 * 1024
FETCH_BYTES: Final = 16 * 1024 * 1024
_LAST_VERSION_BY_NAME: Final = 12
_NO_SESSION: Final = -1

Gap = Callable[[int, int, int], object]
"""Told a partition, the offset wanted and the offset reading goes on at."""


def _unnoticed(partition: int, wanted: int, start: int) -> None:
    """Who does not ask is not told."""


class Consumer:
    def __init__(
        self,
        client: ClusterClient,
        topic: TopicMetadata,
        positions: Mapping[int, int],
        *,
        on_gap: Gap = _unnoticed,
        read_committed: bool = False,
        producer_id: int | None = None,
    ) -> None:
        """With `producer_id`, only records that this producer wrote."""
        self.positions = dict(positions)
        self._client = client
        self._topic = topic
        self._on_gap = on_gap
        self._read_committed = read_committed
        self._producer_id = producer_id
        self._failures = 0

    def poll(self, max_wait_ms: int = MAX_WAIT_MS) -> list[tuple[int, Record]]:
        """What there is now, or nothing after `max_wait_ms`. Failures that may pass are waited out, a few times."""
        records: list[tuple[int, Record]] = []
        errors = self._fetch(max_wait_ms, records)
        for error in errors:
            if not _may_pass(error):
                raise error
        if not errors:
            self._failures = 0
        elif not records:
            self._failures += 1
            if self._failures >= self._client.attempts:
                raise errors[0]
            self._client.pause(self._failures)
        return records

    def drop(self, partition: int) -> None:
        """Read this partition no more."""
        del self.positions[partition]

    def _fetch(self, max_wait_ms: int, records: list[tuple[int, Record]]) -> list[FlintError]:
        client, name = self._client, self._topic.name
        by_leader: dict[int, list[int]] = {}
        try:
            client.freshen()
            self._topic = client.metadata.topics.get(name, self._topic)
            for partition in self.positions:
                by_leader.setdefault(client.leader(name, partition), []).append(partition)
        except (ClientError, RequestError) as error:
            client.note_failure(error)
            return [error]
        responses = client.exchange(
            {node: self._request(partitions, max_wait_ms) for node, partitions in by_leader.items()},
            FetchResponse,
            highest=None if self._topic.has_id else _LAST_VERSION_BY_NAME,
            timeout_s=client.request_timeout_s + max_wait_ms / 1000,
        )
        errors: list[FlintError] = []
        for response in responses.values():
            try:
                if isinstance(response, FlintError):
                    raise response
                check(response.error_code)
            except FlintError as error:
                errors.append(error)
                continue
            for topic in response.responses:
                for one in topic.partitions:
                    try:
                        self._take(one, records)
                    except FlintError as error:
                        errors.append(error)
        for fault in errors:
            client.note_failure(fault)
        return errors

    def _take(self, fetched: FetchResponse.PartitionData, records: list[tuple[int, Record]]) -> None:
        partition = fetched.partition_index
        position = self.positions[partition]
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start = self._nearest(partition, position)
            self._on_gap(partition, position, start)
            self.positions[partition] = start
            return
        check(fetched.error_code, what=f"{self._topic.name}-{partition}")
        try:
            # The broker names every aborted transaction that touches what it sent, so each answer stands alone.
            aborted = ((one.producer_id, one.first_offset) for one in fetched.aborted_transactions or ())
            committed = ReadCommittedFilter(aborted) if self._read_committed else None
            found = read_batches(
                fetched.records or b"", position, committed=committed, producer_id=self._producer_id
            )
        except CorruptionError as error:
            raise CorruptionError(f"{self._topic.name}-{partition}: {error}") from error
        records += [(partition, record) for record in found.records]
        # To the back of the line: no partition can keep the others from being read.
        del self.positions[partition]
        self.positions[partition] = found.next_offset

    def _nearest(self, partition: int, position: int) -> int:
        """Where to go on: at the start if the records were deleted, at the end if the log was cut."""
        topic_partition = (self._topic.name, partition)
        start = offsets(self._client, [topic_partition], EARLIEST)[topic_partition]
        if position < start:
            return start
        return offsets(self._client, [topic_partition], LATEST, read_committed=self._read_committed)[
            topic_partition
        ]

    def _request(self, partitions: list[int], max_wait_ms: int) -> FetchRequest:
        topic = FetchRequest.FetchTopic(
            topic=self._topic.name,
            topic_id=self._topic.id,
            partitions=[
                FetchRequest.FetchPartition(
                    partition=partition,
                    fetch_offset=self.positions[partition],
                    partition_max_bytes=PARTITION_BYTES,
                )
                for partition in partitions
            ],
        )
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=int(self._read_committed),
            session_epoch=_NO_SESSION,
            topics=[topic],
        )


def _may_pass(error: FlintError) -> bool:
    if isinstance(error, RequestError):
        return error.code in RETRIABLE
    return may_pass(error)
