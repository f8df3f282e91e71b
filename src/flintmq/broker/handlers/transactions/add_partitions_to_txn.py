"""AddPartitionsToTxn (24), versions 0–5: partitions take part in a transaction before they are written to.

Clients ask up to version 3, for one transaction; brokers from version 4 on, for several, and also whether a
partition takes part already. If one partition does not exist none of them is added; nor does a client add those of
internal topics, which only coordinators write to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.broker.coordinator_calls import CoordinatorCall, call_for_each
from flintmq.broker.request import Request
from flintmq.coordinator.transactions.machine import TransactionMachine
from flintmq.coordinator.transactions.responses import (
    added_response,
    joined,
    partitions_of,
    transactions_of,
)
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from flintmq.records.topic_partition import TopicPartition

if TYPE_CHECKING:
    from flintmq.broker.services import Services

_FIRST_SEVERAL: Final = 4


def handle(request: Request, message: AddPartitionsToTxnRequest, services: Services) -> None:
    version = request.version
    transactions = transactions_of(message, version)

    def add(at: int) -> CoordinatorCall[TransactionMachine] | AddPartitionsToTxnResponse:
        transaction = transactions[at]
        partitions = partitions_of(transaction)
        refused = {one: code for one in partitions if (code := _refusal(request, one, services))}
        if refused:
            codes = {one: refused.get(one, ErrorCode.OPERATION_NOT_ATTEMPTED) for one in partitions}
            return added_response(transaction.transactional_id, codes, version)
        return CoordinatorCall(
            transaction.transactional_id,
            lambda machine, token: machine.add_partitions(
                token, transaction, version, services.clock.now_ms()
            ),
        )

    def failed(at: int, code: ErrorCode) -> AddPartitionsToTxnResponse:
        codes = dict.fromkeys(partitions_of(transactions[at]), code)
        return added_response(transactions[at].transactional_id, codes, version)

    def join(parts: list[AddPartitionsToTxnResponse]) -> AddPartitionsToTxnResponse:
        return joined(parts) if version >= _FIRST_SEVERAL else parts[0]

    call_for_each(request, services, services.transactions, len(transactions), add, failed, join)


def _refusal(request: Request, partition_name: TopicPartition, services: Services) -> ErrorCode:
    """Return why a partition cannot take part; NONE if it can."""
    partition = services.partitions.get(*partition_name)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.is_internal and request.version < _FIRST_SEVERAL:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE
