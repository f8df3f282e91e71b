"""The loads of `flintmq bench`: one batch, made once, written over and over; read back; single records timed.

Only the broker's speed is to show, so nothing is built or unpacked per record. Invariant: every load ends by
its deadline, every answer is checked, and an error ends the measurement. A load knows one topic.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from flintmq.client.cluster import ClusterClient
from flintmq.client.connection import BrokerConnection
from flintmq.client.errors import check
from flintmq.errors import FlintError
from flintmq.protocol.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from flintmq.records.batch import HEADER_SIZE, LENGTH_END, read_header
from flintmq.records.compression import Codec
from flintmq.records.record import NewRecord, build_batch

# The last versions that name topics: every broker understands them, and new topics need no second question.
_PRODUCE_VERSION, _FETCH_VERSION = 12, 12
_TIMEOUT_S = 30.0
_FETCH_WAIT_MS = 500
_FETCH_BYTES, _PARTITION_BYTES = 50 << 20, 4 << 20
_NO_SESSION = -1
_RECORD_OVERHEAD = 12


class BenchBatch(NamedTuple):
    data: bytes
    record_count: int


def make_batch(*, record_bytes: int, batch_bytes: int, codec: Codec, now_ms: int) -> BenchBatch:
    """As many records as fit in `batch_bytes` before compression, one at least."""
    count = max(1, (batch_bytes - HEADER_SIZE) // (record_bytes + _RECORD_OVERHEAD))
    # Text that a codec finds something in, as in what people send, and that differs from record to record.
    words = b"".join(b"%08d-the-quick-brown-fox-" % number for number in range(record_bytes // 8 + count + 2))
    records: list[NewRecord] = [
        (None, words[at * 7 % 32 :][:record_bytes].ljust(record_bytes, b"."), now_ms, ())
        for at in range(count)
    ]
    return BenchBatch(build_batch(records, codec=codec), count)


@dataclass(slots=True)
class LoadResult:
    records: int = 0
    data_bytes: int = 0
    """Of batches, as they go over the wire."""
    seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def mb_per_s(self) -> float:
        return self.data_bytes / self.seconds / 1e6 if self.seconds else 0.0


def percentile(values: Sequence[float], share: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class LoadGenerator:
    def __init__(self, client: ClusterClient, topic: str, *, acks: int) -> None:
        self._client = client
        self._topic = topic
        self._acks = acks
        self._partitions = sorted(client.topic(topic).partitions)

    def write(
        self, batch: BenchBatch, *, records_max: int, in_flight_max: int, duration_s: float
    ) -> LoadResult:
        """Batch after batch to all partitions in turn, so many unanswered at a time."""
        measured = LoadResult()
        waiting: deque[tuple[BrokerConnection, float]] = deque()
        requests = [self._produce(partition, batch.data) for partition in self._partitions]
        connections = [
            self._client.broker(self._client.leader(self._topic, partition)) for partition in self._partitions
        ]
        began = time.perf_counter()
        sent = 0
        while True:
            now = time.perf_counter()
            while (
                len(waiting) < in_flight_max
                and sent * batch.record_count < records_max
                and now - began < duration_s
            ):
                at = sent % len(requests)
                connections[at].send(requests[at], _TIMEOUT_S, highest=_PRODUCE_VERSION)
                waiting.append((connections[at], now))
                sent += 1
                now = time.perf_counter()
            if not waiting:
                break
            # The oldest first: answers of one connection come in the order of its requests.
            connection, sent_at = waiting.popleft()
            _check_produced(connection.receive(ProduceResponse, _TIMEOUT_S))
            measured.latencies_ms.append((time.perf_counter() - sent_at) * 1000)
            measured.records += batch.record_count
            measured.data_bytes += len(batch.data)
        measured.seconds = time.perf_counter() - began
        return measured

    def read(self, *, records: int, duration_s: float) -> LoadResult:
        """All partitions from their beginning until so many records were seen."""
        measured = LoadResult()
        positions = dict.fromkeys(self._partitions, 0)
        began = time.perf_counter()
        while measured.records < records and time.perf_counter() - began < duration_s:
            by_leader: dict[int, list[int]] = {}
            for partition in positions:
                by_leader.setdefault(self._client.leader(self._topic, partition), []).append(partition)
            asked = time.perf_counter()
            responses = self._client.exchange(
                {node: self._fetch(partitions, positions) for node, partitions in by_leader.items()},
                FetchResponse,
                highest=_FETCH_VERSION,
                timeout_s=_TIMEOUT_S,
            )
            measured.latencies_ms.append((time.perf_counter() - asked) * 1000)
            for response in responses.values():
                if isinstance(response, FlintError):
                    raise response
                check(response.error_code)
                for topic in response.responses:
                    for partition_data in topic.partitions:
                        self._take(partition_data, positions, measured)
        measured.seconds = time.perf_counter() - began
        return measured

    def time_single(self, batch: BenchBatch, *, count: int, duration_s: float) -> LoadResult:
        """The same batch again and again, each sent when the one before is acknowledged."""
        return self.write(
            batch, records_max=count * batch.record_count, in_flight_max=1, duration_s=duration_s
        )

    def _produce(self, partition: int, data: bytes) -> ProduceRequest:
        return ProduceRequest(
            acks=self._acks,
            timeout_ms=int(_TIMEOUT_S * 1000),
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=self._topic,
                    partition_data=[ProduceRequest.PartitionProduceData(index=partition, records=data)],
                )
            ],
        )

    def _fetch(self, partitions: Sequence[int], positions: dict[int, int]) -> FetchRequest:
        wanted = [
            FetchRequest.FetchPartition(
                partition=partition, fetch_offset=positions[partition], partition_max_bytes=_PARTITION_BYTES
            )
            for partition in partitions
        ]
        return FetchRequest(
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            session_epoch=_NO_SESSION,
            topics=[FetchRequest.FetchTopic(topic=self._topic, partitions=wanted)],
        )

    def _take(
        self, fetched: FetchResponse.PartitionData, positions: dict[int, int], measured: LoadResult
    ) -> None:
        check(fetched.error_code, what=f"{self._topic}-{fetched.partition_index}")
        data = memoryview(fetched.records or b"")
        position = 0
        while position + HEADER_SIZE <= len(data):
            header = read_header(data, position)
            if position + header.size > len(data) or header.length < HEADER_SIZE - LENGTH_END:
                break
            measured.records += header.record_count
            measured.data_bytes += header.size
            positions[fetched.partition_index] = header.last_offset + 1
            position += header.size


def _check_produced(response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            check(partition.error_code, partition.error_message, what=f"partition {partition.index}")
