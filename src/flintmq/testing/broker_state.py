"""What a broker holds, seen and changed from inside: no connection, no fault and no request log is involved.

Runs in the broker's thread, on the same objects that the handlers use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from flintmq.broker.services import Services
from flintmq.client.partitioner import partition_of_key
from flintmq.errors import ErrorCode, FlintError, RequestError
from flintmq.metadata.topics import NewTopic
from flintmq.partitions.partition import Partition
from flintmq.protocol.messages import (
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from flintmq.records.batch import CONTROL, HEADER_SIZE, BatchHeader, read_header
from flintmq.records.limits import VALIDATED_BYTES_MAX
from flintmq.records.record import Header, build_batch, records_of
from flintmq.storage import reader
from flintmq.storage.aborted_transactions import AbortedTransaction
from flintmq.storage.visibility import Isolation

_READ_BYTES = 1024 * 1024
_ASKING = -1
"""Stands for a request: coordinators answer these questions at once."""
_LIST_VERSION, _FETCH_VERSION = 5, 9


@dataclass(frozen=True, slots=True)
class Record:
    """One record where it is stored."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """In milliseconds since the epoch."""
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def topics(services: Services) -> dict[str, int]:
    """Names and partition counts, sorted by name."""
    found = services.metadata.image.topics
    return {name: len(found[name].partitions) for name in sorted(found)}


async def create_topic(
    services: Services, name: str, partitions: int, configs: Mapping[str, str | None]
) -> None:
    await services.topics.create(NewTopic(name, partitions, configs=configs))


async def delete_topic(services: Services, name: str) -> None:
    await services.topics.delete(services.topics.find(name))


def records(services: Services, topic: str, partition: int | None, read_committed: bool) -> list[Record]:
    """All that consumers can see, or those that read committed records only; by partition and offset."""
    count = len(services.topics.find(topic).partitions)
    indexes = range(count) if partition is None else [partition]
    isolation = Isolation.READ_COMMITTED if read_committed else Isolation.READ_UNCOMMITTED
    return [
        record
        for index in indexes
        for record in _records_in(_partition(services, topic, index), isolation=isolation)
    ]


async def produce(
    services: Services,
    topic: str,
    values: Sequence[bytes | None],
    *,
    key: bytes | None,
    headers: Sequence[Header],
    timestamp: int | None,
    partition: int | None,
) -> list[Record]:
    """Append one batch and wait until it is visible. A topic that does not exist is made."""
    if topic not in services.metadata.image.topics:
        await services.topics.create(NewTopic(topic))
    if partition is None:
        count = len(services.topics.find(topic).partitions)
        partition = 0 if key is None else partition_of_key(key, count)
    target = _partition(services, topic, partition)
    time_ms = services.clock.now_ms() if timestamp is None else timestamp
    batch = memoryview(bytearray(build_batch([(key, value, time_ms, headers) for value in values])))
    header = target.check(batch, services.clock.now_ms())
    if target.must_validate(header):
        batch = memoryview(bytearray(target.validate_batch(bytes(batch), header)))
        header = read_header(batch)
    appended = target.append(batch, header, services.clock.now_ms())
    await _visible(target, appended.last_offset)
    written = list(_records_in(target, appended.base_offset))
    return written[: len(values)]


async def groups(services: Services) -> dict[str, str]:
    """Names and states of consumer groups, sorted by name."""
    await services.groups.loaded()
    found: dict[str, str] = {}
    for shard in services.groups:
        for _, part in shard.machine.list_groups(_ASKING, ListGroupsRequest(), _LIST_VERSION).responses:
            assert isinstance(part, ListGroupsResponse)
            found.update({one.group_id: one.group_state for one in part.groups})
    return {name: found[name] for name in sorted(found)}


async def committed(services: Services, group: str) -> dict[tuple[str, int], int]:
    """The offsets that a group has committed, by topic and partition; none of a group that is not there."""
    await services.groups.loaded()
    shard = services.groups.shard_of(group)
    if shard is None:
        return {}
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
    decision = shard.machine.fetch_offsets(_ASKING, asked, _FETCH_VERSION, require_stable=False)
    ((_, response),) = decision.responses
    assert isinstance(response, OffsetFetchResponse)
    return {
        (topic.name, one.partition_index): one.committed_offset
        for topic in response.groups[0].topics
        for one in topic.partitions
    }


async def transactions(services: Services) -> dict[str, str]:
    """Transactional ids and the states of their transactions, sorted by name."""
    await services.transactions.loaded()
    known = {
        one.transactional_id: one.state.title
        for shard in services.transactions
        for one in shard.machine.known()
    }
    return {name: known[name] for name in sorted(known)}


def _partition(services: Services, topic: str, index: int) -> Partition:
    partition = services.partitions.get(topic, index)
    if partition is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{index}.")
    return partition


async def _visible(partition: Partition, offset: int) -> None:
    if partition.is_visible(offset):
        return
    seen: asyncio.Future[FlintError | None] = asyncio.get_running_loop().create_future()
    partition.when_visible(offset, seen.set_result)
    failure = await seen
    if failure is not None:
        raise failure


class _Skips:
    """Which batches are of aborted transactions, while batches are read in their order."""

    def __init__(self) -> None:
        self._coming: set[AbortedTransaction] = set()
        self._aborted: set[int] = set()

    def tell(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._coming.update(transactions)

    def ended(self, producer_id: int) -> None:
        self._aborted.discard(producer_id)

    def is_aborted(self, header: BatchHeader) -> bool:
        begun = {one for one in self._coming if one.first_offset <= header.last_offset}
        self._coming -= begun
        self._aborted.update(one.producer_id for one in begun)
        return header.is_transactional and header.producer_id in self._aborted


def _records_in(
    partition: Partition, start: int | None = None, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> Iterator[Record]:
    log = partition.log
    first = offset = log.start_offset if start is None else start
    skips = _Skips()
    while offset < log.high_watermark:
        found = reader.read(log, offset, _READ_BYTES, isolation, at_least_one=True)
        if found is None:
            return
        if isolation is Isolation.READ_COMMITTED:
            skips.tell(reader.aborted_transactions(log, found, offset))
        data = memoryview(found.read())
        while len(data) >= HEADER_SIZE:
            header = read_header(data)
            if header.size > len(data):
                break
            if header.attributes & CONTROL:
                skips.ended(header.producer_id)
            elif not skips.is_aborted(header):
                for record in records_of(data[: header.size], limit=VALIDATED_BYTES_MAX):
                    # A batch may begin before the offset that its log begins with.
                    if record.offset >= first:
                        yield Record(
                            partition.topic,
                            partition.index,
                            record.offset,
                            record.timestamp,
                            record.key,
                            record.value,
                            record.headers,
                        )
            offset = header.last_offset + 1
            data = data[header.size :]
