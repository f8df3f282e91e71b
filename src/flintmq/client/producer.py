"""Writing records to one topic: batched, retried, and not written twice.

    producer = Producer(client, "orders", codec=Codec.ZSTD)
    producer.send(b"value", key=b"key")
    producer.flush()
    producer.delivered

Invariant: the records of one partition are written in the order in which they were sent, each once: with
acks=all the producer is idempotent (KIP-98), so that a batch sent again after a lost connection is recognised.
With fewer acks, a batch that may have arrived is not sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from flintmq.client.batching import ProducerSequences, RecordAccumulator, size_of
from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import ClientError, NoBrokerReached, check, may_pass
from flintmq.client.metadata import TopicMetadata
from flintmq.client.partitioner import StickyPartition, partition_of_key
from flintmq.client.retries import MAYBE_DONE, RETRIABLE
from flintmq.errors import ErrorCode, FlintError, ProtocolError, RequestError
from flintmq.protocol.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from flintmq.records.batch import HEADER_SIZE, NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from flintmq.records.compression import Codec
from flintmq.records.record import Header, NewRecord, build_batch

ALL, LEADER, NONE = -1, 1, 0
"""What `acks` may be."""
BATCH_BYTES: Final = 256 * 1024
BUFFER_BYTES: Final = 4 * 1024 * 1024
_LAST_VERSION_BY_NAME: Final = 12


class Delivery(NamedTuple):
    """A batch that is in the log, or with acks 0 one that was sent off."""

    partition: int
    base_offset: int
    """-1 where the broker was not asked to tell."""
    record_count: int


class _Flight:
    """Batches being written, one for each partition, and the records in each."""

    def __init__(self, records: dict[int, list[NewRecord]]) -> None:
        self.records = records
        self.batches: dict[int, bytes] = {}
        """Those not written yet, as they go over the wire."""


class Producer:
    def __init__(
        self,
        client: ClusterClient,
        topic: TopicMetadata,
        *,
        acks: int = ALL,
        codec: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
        first_partition: int = 0,
    ) -> None:
        self._client = client
        self._topic = topic
        self._acks = acks
        self._codec = codec
        self._batches = RecordAccumulator(batch_bytes)
        self._sequences = ProducerSequences()
        self._sticky = StickyPartition(
            sorted(topic.partitions), sticky_bytes=batch_bytes - HEADER_SIZE, first=first_partition
        )
        self._producer_id: tuple[int, int] | None = None
        self.delivered: list[Delivery] = []
        """Every batch that is written, in the order of the answers; whoever reads it may clear it."""

    @property
    def is_full(self) -> bool:
        """So much waits that it should be flushed before more is sent."""
        return self._batches.bytes >= BUFFER_BYTES

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Put a record in line; nothing is written before `flush`."""
        if partition is not None and partition not in self._topic.partitions:
            count = len(self._topic.partitions)
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{self._topic.name} has no partition {partition}, only 0 to {count - 1}",
            )
        if timestamp_ms is None:
            timestamp_ms = self._client.clock.now_ms()
        record: NewRecord = (key, value, timestamp_ms, headers)
        if partition is None:
            count = len(self._topic.partitions)
            partition = self._sticky.take(size_of(record)) if key is None else partition_of_key(key, count)
        self._batches.add(partition, record)

    def flush(self) -> None:
        """Write all that waits. On an error, what was written before it stays written."""
        while self._batches:
            self._deliver(_Flight(self._batches.take()))

    def _deliver(self, flight: _Flight) -> None:
        """One batch for each partition; those that fail are tried again, the others are not."""
        for partition, records in flight.records.items():
            flight.batches[partition] = self._build(partition, records)
        failures = 0
        while flight.batches:
            failed = self._write(flight)
            if failed is None:
                continue
            failures += 1
            if failures >= self._client.attempts:
                raise failed
            self._client.note_failure(failed)
            self._client.pause(failures)

    def _build(self, partition: int, records: Sequence[NewRecord]) -> bytes:
        producer_id, epoch = self._identity()
        return build_batch(
            records,
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=NO_SEQUENCE if producer_id == NO_PRODUCER_ID else self._sequences.next(partition),
        )

    def _identity(self) -> tuple[int, int]:
        """Producer id and epoch; none where the broker does not know them or acks would make them useless."""
        if self._producer_id is None:
            self._producer_id = NO_PRODUCER_ID, NO_EPOCH
            if self._acks == ALL and InitProducerIdRequest in self._client.attempt(self._client.any).served:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
                response = self._client.call(
                    request, InitProducerIdResponse, lambda response: check(response.error_code)
                )
                self._producer_id = response.producer_id, response.producer_epoch
        return self._producer_id

    def _write(self, flight: _Flight) -> FlintError | None:
        """One round; what is written leaves the flight. Returns an error to wait out, raises any other."""
        client, name = self._client, self._topic.name
        by_leader: dict[int, list[int]] = {}
        try:
            client.freshen()
            self._topic = client.metadata.topics.get(name, self._topic)
            for partition in flight.batches:
                by_leader.setdefault(client.leader(name, partition), []).append(partition)
        except (ClientError, RequestError) as error:
            return error
        requests = {node: self._request(flight, partitions) for node, partitions in by_leader.items()}
        if self._acks == NONE:
            return self._send_off(flight, requests, by_leader)
        responses = client.exchange(
            requests, ProduceResponse, highest=self._highest, timeout_s=client.request_timeout_s
        )
        errors = [
            fault
            for node, response in responses.items()
            for fault in self._judge(flight, by_leader[node], response)
        ]
        for fault in errors:
            if not self._may_pass(fault):
                raise fault
        return errors[0] if errors else None

    def _judge(
        self, flight: _Flight, asked: Sequence[int], response: ProduceResponse | FlintError
    ) -> list[FlintError]:
        """Take note of every partition's outcome, before any error ends the matter."""
        if isinstance(response, FlintError):
            return [response]
        errors: list[FlintError] = []
        partitions = [one for topic in response.responses for one in topic.partition_responses]
        if sorted(one.index for one in partitions) != sorted(asked):
            return [ProtocolError(f"the broker was sent partitions {asked} and answers for others")]
        for one in partitions:
            # A duplicate is a batch whose answer was lost and whose offset the broker has forgotten.
            if one.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._written(flight, one.index, one.base_offset)
            elif one.error_code == ErrorCode.MESSAGE_TOO_LARGE and len(flight.records[one.index]) > 1:
                self._halve(flight, one.index)
            else:
                try:
                    check(one.error_code, one.error_message, what=f"{self._topic.name}-{one.index}")
                except RequestError as error:
                    errors.append(error)
        return errors

    def _may_pass(self, error: FlintError) -> bool:
        if isinstance(error, NoBrokerReached):
            return True
        # Where it may have been written, only a batch that would be recognised is sent again.
        is_idempotent = self._identity()[0] != NO_PRODUCER_ID
        if isinstance(error, RequestError):
            return error.code in RETRIABLE and (is_idempotent or error.code not in MAYBE_DONE)
        return may_pass(error) and is_idempotent

    def _written(self, flight: _Flight, partition: int, base_offset: int) -> None:
        count = len(flight.records[partition])
        del flight.batches[partition]
        self._sequences.acknowledged(partition, count)
        self.delivered.append(Delivery(partition, base_offset, count))

    def _halve(self, flight: _Flight, partition: int) -> None:
        """The topic takes smaller batches than ours: one half now, the other right after it."""
        records = flight.records[partition]
        middle = len(records) // 2
        self._batches.put_back(partition, records[middle:])
        flight.records[partition] = records[:middle]
        flight.batches[partition] = self._build(partition, records[:middle])

    def _send_off(
        self, flight: _Flight, requests: dict[int, ProduceRequest], by_leader: dict[int, list[int]]
    ) -> FlintError | None:
        """With acks 0 nothing comes back: sent is all that can be known."""
        client = self._client
        for node, request in requests.items():
            try:
                client.broker(node).send(
                    request, client.request_timeout_s, highest=self._highest, expects_response=False
                )
            except (NoBrokerReached, RequestError) as error:
                return error
            for partition in by_leader[node]:
                self._written(flight, partition, -1)
        return None

    def _request(self, flight: _Flight, partitions: Sequence[int]) -> ProduceRequest:
        topic = ProduceRequest.TopicProduceData(
            name=self._topic.name,
            topic_id=self._topic.id,
            partition_data=[
                ProduceRequest.PartitionProduceData(index=partition, records=flight.batches[partition])
                for partition in partitions
            ],
        )
        return ProduceRequest(
            acks=self._acks, timeout_ms=int(self._client.request_timeout_s * 1000), topic_data=[topic]
        )

    @property
    def _highest(self) -> int | None:
        return None if self._topic.has_id else _LAST_VERSION_BY_NAME
