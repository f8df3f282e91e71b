"""AddPartitionsToTxn (24), versions 0–5: partitions take part in a transaction before they are written to.

Clients ask up to version 3, for one transaction; brokers from version 4 on, for several, and also whether a
partition takes part already. If one partition does not exist none of them is added; nor does a client add those of
internal topics, which only coordinators write to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.broker.authorization import check_cluster_allowed, is_allowed
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
from flintmq.metadata.image import is_internal
from flintmq.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from flintmq.records.topic_partition import TopicPartition
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

# Looked up once: a member of an enum costs a call each time.
_CLUSTER_ACTION: Final = AclOperation.CLUSTER_ACTION
_WRITE: Final = AclOperation.WRITE
_TRANSACTIONAL_ID: Final = AclResource.TRANSACTIONAL_ID
_TOPIC: Final = AclResource.TOPIC

_FIRST_SEVERAL: Final = 4


def handle(request: Request, message: AddPartitionsToTxnRequest, services: Services) -> None:
    version = request.version
    if version >= _FIRST_SEVERAL:
        check_cluster_allowed(request, services, _CLUSTER_ACTION)
    transactions = transactions_of(message, version)

    def failed(at: int, code: ErrorCode) -> AddPartitionsToTxnResponse:
        codes = dict.fromkeys(partitions_of(transactions[at]), code)
        return added_response(transactions[at].transactional_id, codes, version)

    def add(at: int) -> CoordinatorCall[TransactionMachine] | AddPartitionsToTxnResponse:
        transaction = transactions[at]
        name, partitions = transaction.transactional_id, partitions_of(transaction)
        if version < _FIRST_SEVERAL and not is_allowed(request, services, _WRITE, _TRANSACTIONAL_ID, name):
            return failed(at, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        refused = {one: code for one in partitions if (code := _refusal(request, one, services))}
        if refused:
            codes = {one: refused.get(one, ErrorCode.OPERATION_NOT_ATTEMPTED) for one in partitions}
            return added_response(name, codes, version)
        return CoordinatorCall(
            name,
            lambda machine, token: machine.add_partitions(
                token, transaction, version, services.clock.now_ms()
            ),
        )

    def join(parts: list[AddPartitionsToTxnResponse]) -> AddPartitionsToTxnResponse:
        return joined(parts) if version >= _FIRST_SEVERAL else parts[0]

    call_for_each(request, services, services.transactions, len(transactions), add, failed, join)


def _refusal(request: Request, partition_name: TopicPartition, services: Services) -> ErrorCode:
    """Return why a partition cannot take part; NONE if it can."""
    topic, index = partition_name
    exists = services.metadata.image.has_partition(topic, index)
    if request.version < _FIRST_SEVERAL and (
        (exists and is_internal(topic)) or not is_allowed(request, services, _WRITE, _TOPIC, topic)
    ):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not exists:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE
