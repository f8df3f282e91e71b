"""AddPartitionsToTxn (24), versions 0–5: partitions take part in a transaction before they are written to.

Clients ask up to version 3, for one transaction; brokers from version 4 on, for several, and also whether a
partition takes part already. If one partition does not exist none of them is added; nor does a client add those of
internal topics, which only coordinators write to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.limits import gather_in_turns
from flintmq.broker.request import Request
from flintmq.coordinator.transactions.responses import (
    AddedTransaction,
    added_response,
    joined,
    partitions_of,
    transactions_of,
)
from flintmq.coordinator.transactions.transaction import TopicPartition
from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services

_FIRST_SEVERAL = 4


async def handle(
    request: Request, message: AddPartitionsToTxnRequest, services: Services
) -> AddPartitionsToTxnResponse:
    transactions = transactions_of(message, request.version)
    if request.version < _FIRST_SEVERAL:
        return await _add(request, transactions[0], services)
    return joined(await gather_in_turns(_add(request, one, services) for one in transactions))


async def _add(
    request: Request, transaction: AddedTransaction, services: Services
) -> AddPartitionsToTxnResponse:
    places = partitions_of(transaction)
    refused = {place: code for place in places if (code := _refusal(request, place, services))}
    if refused:
        codes = {place: refused.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED) for place in places}
        return added_response(transaction.transactional_id, codes, request.version)
    try:
        answer = await services.transactions.answer_to(
            transaction.transactional_id,
            lambda machine, token: machine.add_partitions(
                token, transaction, request.version, services.clock.now_ms()
            ),
        )
    except RequestError as error:
        codes = dict.fromkeys(places, error.code)
        return added_response(transaction.transactional_id, codes, request.version)
    assert isinstance(answer, AddPartitionsToTxnResponse)
    return answer


def _refusal(request: Request, place: TopicPartition, services: Services) -> ErrorCode:
    """Why a partition cannot take part; NONE if it can."""
    partition = services.partitions.get(*place)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.is_internal and request.version < _FIRST_SEVERAL:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE
