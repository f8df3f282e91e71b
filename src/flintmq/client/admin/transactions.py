"""Transactions from outside: which there are, what they touch, and ending those that nobody ends (KIP-664).

Two sides know of a transaction. Its coordinator knows the transactional id, the state and the partitions; each
partition knows the producers that write to it and where their open transactions began. One that is open in a
partition and that no coordinator knows will never be ended: it hangs, and keeps whoever reads committed records from
going on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from flintmq.client.cluster import ClusterClient
from flintmq.client.coordinators import CoordinatorType, call_coordinator
from flintmq.client.errors import ConnectionLost, NotFlintMQ, check
from flintmq.errors import ErrorCode, FlintError, ProtocolError, RequestError
from flintmq.protocol.messages import (
    AbortTransactionRequest,
    AbortTransactionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from flintmq.records.topic_partition import TopicPartition

UNDER_WAY: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
STATES: Final = (*UNDER_WAY, "CompleteCommit", "CompleteAbort", "Empty")

_ANY_AGE: Final = -1
_NONE: Final = -1
_PARTITIONS_PER_REQUEST: Final = 500

Producer = DescribeProducersResponse.ProducerState


class ListedTransaction(NamedTuple):
    id: str
    state: str
    producer_id: int
    coordinator: int
    """The broker that looks after it."""


class DescribedTransaction(NamedTuple):
    id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    start_ms: int | None
    """None where none has begun yet."""
    coordinator: int
    partitions: tuple[TopicPartition, ...]


class OpenTransaction(NamedTuple):
    """As a partition knows it."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    """Of the last one that ended a transaction of this producer here; -1 if none has."""
    start_offset: int
    last_ms: int
    """The time of its last record."""

    @property
    def topic_partition(self) -> TopicPartition:
        return self.topic, self.partition


# ---- by their coordinators


def list_transactions(
    client: ClusterClient,
    *,
    states: Collection[str] = (),
    older_than_ms: int | None = None,
    pattern: str | None = None,
    producer_ids: Collection[int] = (),
) -> list[ListedTransaction]:
    """Of all brokers those that pass every filter, by name. One that never began counts as old.

    UnsupportedVersion if a broker is too old to select by age or name.
    """
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=sorted(producer_ids),
        duration_filter=_ANY_AGE if older_than_ms is None else older_than_ms,
        transactional_id_pattern=pattern,
    )

    def ask() -> list[ListedTransaction]:
        client.freshen()
        requests = dict.fromkeys(client.metadata.brokers, request)
        responses = client.exchange(requests, ListTransactionsResponse, timeout_s=client.request_timeout_s)
        found: dict[str, ListedTransaction] = {}
        for node, response in responses.items():
            if isinstance(response, FlintError):
                raise response
            check(response.error_code, what=f"pattern {pattern}" if pattern else "")
            for one in response.transaction_states:
                found[one.transactional_id] = ListedTransaction(
                    one.transactional_id, one.transaction_state, one.producer_id, node
                )
        return [found[name] for name in sorted(found)]

    return client.attempt(ask)


def describe_transaction(client: ClusterClient, transactional_id: str) -> DescribedTransaction:
    def judge(response: DescribeTransactionsResponse) -> None:
        if len(response.transaction_states) != 1:
            raise ProtocolError(f"the broker's answer is not about {transactional_id} alone")
        code = response.transaction_states[0].error_code
        if code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise no_such_id(transactional_id)
        check(code, what=CoordinatorType.TRANSACTIONAL_ID.named(transactional_id))

    node, response = call_coordinator(
        client,
        CoordinatorType.TRANSACTIONAL_ID,
        transactional_id,
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        DescribeTransactionsResponse,
        judge,
    )
    found = response.transaction_states[0]
    return DescribedTransaction(
        transactional_id,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        None if found.transaction_start_time_ms == _NONE else found.transaction_start_time_ms,
        node,
        tuple(sorted((topic.topic, index) for topic in found.topics for index in topic.partitions)),
    )


def abort_transaction(client: ClusterClient, transactional_id: str) -> None:
    """End its open transaction and fence its producer, which only FlintMQ does for somebody else."""

    def judge(response: AbortTransactionResponse) -> None:
        if response.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise no_such_id(transactional_id)
        check(response.error_code, response.error_message)

    request = AbortTransactionRequest(transactional_id=transactional_id)
    try:
        call_coordinator(
            client,
            CoordinatorType.TRANSACTIONAL_ID,
            transactional_id,
            request,
            AbortTransactionResponse,
            judge,
            repeatable=False,
        )
    except ConnectionLost as error:
        if error.by_broker:
            raise NotFlintMQ(error.address) from error
        raise


def no_such_id(transactional_id: str) -> RequestError:
    return RequestError(
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {transactional_id}"
    )


# ---- by their partitions


def open_transactions(
    client: ClusterClient, topic_partitions: Iterable[TopicPartition]
) -> list[OpenTransaction]:
    """Of these partitions, in their order. The topics must be known to the client."""
    found: dict[TopicPartition, list[OpenTransaction]] = {}
    waiting = list(dict.fromkeys(topic_partitions))
    order = {topic_partition: at for at, topic_partition in enumerate(waiting)}
    while waiting:
        batch, waiting = waiting[:_PARTITIONS_PER_REQUEST], waiting[_PARTITIONS_PER_REQUEST:]
        open_by_partition, left = client.attempt(lambda batch=batch: _describe(client, batch))  # type: ignore[misc]
        found |= open_by_partition
        waiting = left + waiting
    return [one for topic_partition in sorted(found, key=order.__getitem__) for one in found[topic_partition]]


def _describe(
    client: ClusterClient, topic_partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, list[OpenTransaction]], list[TopicPartition]]:
    """One question to each leader; also the partitions that did not fit into an answer."""
    client.freshen()
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic, index in topic_partitions:
        by_leader.setdefault(client.leader(topic, index), {}).setdefault(topic, []).append(index)
    requests = {
        node: DescribeProducersRequest(
            topics=[
                DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=indexes)
                for topic, indexes in topics.items()
            ]
        )
        for node, topics in by_leader.items()
    }
    responses = client.exchange(requests, DescribeProducersResponse, timeout_s=client.request_timeout_s)
    open_by_partition: dict[TopicPartition, list[OpenTransaction]] = {}
    for response in responses.values():
        if isinstance(response, FlintError):
            raise response
        open_by_partition |= _open_by_partition(response)
    return open_by_partition, [
        topic_partition for topic_partition in topic_partitions if topic_partition not in open_by_partition
    ]


def _open_by_partition(response: DescribeProducersResponse) -> dict[TopicPartition, list[OpenTransaction]]:
    """Without those of which one answer cannot tell besides the others: they are asked for again."""
    open_by_partition: dict[TopicPartition, list[OpenTransaction]] = {}
    refused: RequestError | None = None
    for topic in response.topics:
        for one in topic.partitions:
            try:
                check(one.error_code, one.error_message, what=f"{topic.name}-{one.partition_index}")
            except RequestError as error:
                if error.code is not ErrorCode.INVALID_REQUEST:
                    raise
                refused = error
                continue
            open_by_partition[topic.name, one.partition_index] = [
                _open(topic.name, one.partition_index, producer)
                for producer in one.active_producers
                if producer.current_txn_start_offset >= 0
            ]
    if refused is not None and not open_by_partition:
        raise refused
    return open_by_partition


def _open(topic: str, partition: int, producer: Producer) -> OpenTransaction:
    return OpenTransaction(
        topic,
        partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.current_txn_start_offset,
        producer.last_timestamp,
    )


def owners(client: ClusterClient, found: Sequence[OpenTransaction]) -> dict[OpenTransaction, str]:
    """The transactional ids under which coordinators know these; one that is missing here hangs."""
    if not found:
        return {}
    listed = list_transactions(client, producer_ids={one.producer_id for one in found})
    ids = {one.producer_id: one.id for one in listed}
    described: dict[int, DescribedTransaction] = {}
    for producer_id, transactional_id in ids.items():
        try:
            described[producer_id] = describe_transaction(client, transactional_id)
        except RequestError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return {
        one: ids[one.producer_id]
        for one in found
        if one.producer_id in described and one.topic_partition in described[one.producer_id].partitions
    }


def find_hanging(
    client: ClusterClient, topic_partitions: Collection[TopicPartition], *, older_than_ms: int
) -> list[OpenTransaction]:
    """Those whose last record is older than that, and which no coordinator knows."""
    oldest_ms = client.clock.now_ms() - older_than_ms
    old = [one for one in open_transactions(client, topic_partitions) if one.last_ms < oldest_ms]
    known = owners(client, old)
    hanging = [one for one in old if one not in known]
    # One that ended between the two questions was looked for in vain: it is not there any more.
    still = set(open_transactions(client, dict.fromkeys(one.topic_partition for one in hanging)))
    return [one for one in hanging if one in still]


def abort_hanging(client: ClusterClient, hanging: OpenTransaction) -> None:
    """Write its abort marker in the place of a coordinator; nobody is fenced, for nobody is known."""
    topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic(
        name=hanging.topic, partition_indexes=[hanging.partition]
    )
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=hanging.producer_id,
        producer_epoch=hanging.epoch,
        transaction_result=False,
        topics=[topic],
        # No coordinator has a lower one.
        coordinator_epoch=max(0, hanging.coordinator_epoch),
    )

    def ask() -> None:
        client.freshen()
        leader = client.broker(client.leader(*hanging.topic_partition))
        response = leader.call(
            WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, client.request_timeout_s
        )
        results = _codes(response)
        if list(results) != [hanging.topic_partition]:
            raise ProtocolError("the broker's answer is not about the marker that was sent")
        check(results[hanging.topic_partition], what=f"{hanging.topic}-{hanging.partition}")

    # A second one might end the next transaction of the producer.
    client.attempt(ask, repeatable=False)


def _codes(response: WriteTxnMarkersResponse) -> dict[TopicPartition, int]:
    return {
        (topic.name, one.partition_index): one.error_code
        for marker in response.markers
        for topic in marker.topics
        for one in topic.partitions
    }
