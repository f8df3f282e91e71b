"""What is decided about a transaction, as the protocol's responses.

Clients of old versions do not know PRODUCER_FENCED (KIP-588) and are told INVALID_PRODUCER_EPOCH in its place. What
went wrong when a record was written is told as the coordinator's own trouble.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flintmq.coordinator.transactions.transaction import Transaction
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsResponse,
    EndTxnResponse,
    InitProducerIdResponse,
)
from flintmq.records.batch import NO_EPOCH, NO_PRODUCER_ID
from flintmq.records.topic_partition import TopicPartition

AddedTransaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction

_BATCHED_VERSION: Final = 4
"""From here on AddPartitionsToTxn carries several transactions, from brokers and not from clients."""
_FENCED_VERSION: Final = 2
_FENCED_VERSION_OF_INIT: Final = 4

_WRITE_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def write_error(code: ErrorCode) -> ErrorCode:
    """What a client is told when the coordinator's record could not be written."""
    return _WRITE_ERRORS.get(code, code)


def _spelled(code: ErrorCode, version: int, fenced_version: int) -> int:
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def init_response(
    code: ErrorCode, version: int, producer_id: int = NO_PRODUCER_ID, epoch: int = NO_EPOCH
) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=_spelled(code, version, _FENCED_VERSION_OF_INIT),
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def end_response(
    code: ErrorCode, version: int, producer_id: int = NO_PRODUCER_ID, epoch: int = NO_EPOCH
) -> EndTxnResponse:
    """The producer id and epoch that the producer goes on with, of which only the newest versions know."""
    return EndTxnResponse(
        error_code=_spelled(code, version, _FENCED_VERSION), producer_id=producer_id, producer_epoch=epoch
    )


def offsets_response(code: ErrorCode, version: int) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=_spelled(code, version, _FENCED_VERSION))


def transactions_of(request: AddPartitionsToTxnRequest, version: int) -> list[AddedTransaction]:
    """The transactions of a request; the one of an old version as if it stood in a new one."""
    if version >= _BATCHED_VERSION:
        return request.transactions
    return [
        AddedTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def partitions_of(transaction: AddedTransaction) -> list[TopicPartition]:
    """In the order of the request, each once."""
    named = [(topic.name, partition) for topic in transaction.topics for partition in topic.partitions]
    return list(dict.fromkeys(named))


def added_response(
    transactional_id: str, codes: Mapping[TopicPartition, ErrorCode], version: int
) -> AddPartitionsToTxnResponse:
    """The answer to one transaction of a request."""
    topics: dict[str, AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = {}
    for (topic, partition), code in codes.items():
        result = topics.setdefault(
            topic, AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(name=topic)
        )
        result.results_by_partition.append(
            AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                partition_index=partition, partition_error_code=_spelled(code, version, _FENCED_VERSION)
            )
        )
    results = list(topics.values())
    if version < _BATCHED_VERSION:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                transactional_id=transactional_id, topic_results=results
            )
        ]
    )


def joined(responses: list[AddPartitionsToTxnResponse]) -> AddPartitionsToTxnResponse:
    """The answers to all transactions of a request (version 4 and newer) as one."""
    return AddPartitionsToTxnResponse(
        results_by_transaction=[one for response in responses for one in response.results_by_transaction]
    )


def described(
    transactional_id: str, transaction: Transaction | None, code: ErrorCode
) -> DescribeTransactionsResponse:
    state = DescribeTransactionsResponse.TransactionState(transactional_id=transactional_id, error_code=code)
    if transaction is not None:
        state.transaction_state = transaction.state.title
        state.transaction_timeout_ms = transaction.timeout_ms
        state.transaction_start_time_ms = transaction.start_ms
        state.producer_id = transaction.producer_id
        state.producer_epoch = transaction.epoch
        topics: dict[str, DescribeTransactionsResponse.TopicData] = {}
        for topic, partition in sorted(transaction.partitions):
            data = topics.setdefault(topic, DescribeTransactionsResponse.TopicData(topic=topic))
            data.partitions.append(partition)
        state.topics = list(topics.values())
    return DescribeTransactionsResponse(transaction_states=[state])
