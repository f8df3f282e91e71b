"""TxnOffsetCommit (28), versions 0–5: offsets that count once the transaction is committed.

From version 5 on the group's partition of the offsets topic is added to the transaction by this request; before, it
must have been added already. Until the marker comes the offsets are pending (KIP-447).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.request import Request
from flintmq.broker.transaction_verification import admission_code
from flintmq.coordinator.groups.offset_commits import transactional_commit_refused
from flintmq.coordinator.transactions.transaction import TopicPartition
from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services

_FIRST_ADDING = 5
_FIRST_ABORTABLE = 4
_WAIT_S = 0.1

Answered = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic


async def handle(request: Request, message: TxnOffsetCommitRequest, services: Services) -> Message:
    refused = _take_unknown(message, services)
    if not message.topics and refused:
        return TxnOffsetCommitResponse(topics=refused)
    try:
        await services.groups.make_topic()
        place = services.groups.topic, services.groups.index_of(message.group_id)
        code = await _admit(request, message, services, place)
        if code is not ErrorCode.NONE:
            raise RequestError(code)
        answer = await services.groups.answer_to(
            message.group_id,
            lambda groups, token: groups.commit_offsets_in_transaction(
                token, message, request.version, services.clock.now_ms()
            ),
        )
        assert isinstance(answer, TxnOffsetCommitResponse)
    except RequestError as error:
        answer = transactional_commit_refused(message, error.code)
    answer.topics += refused
    return answer


async def _admit(
    request: Request, message: TxnOffsetCommitRequest, services: Services, place: TopicPartition
) -> ErrorCode:
    transactions = services.transactions
    name, producer = message.transactional_id, (message.producer_id, message.producer_epoch)
    adds = request.version >= _FIRST_ADDING
    code = (await transactions.admit(name, *producer, [place], adds=adds))[place]
    if code is ErrorCode.CONCURRENT_TRANSACTIONS:
        await transactions.completed(name, _WAIT_S)
        code = (await transactions.admit(name, *producer, [place], adds=adds))[place]
    if code is ErrorCode.NONE and not transactions.takes_part(name, *producer, place):
        code = ErrorCode.INVALID_TXN_STATE
    code = admission_code(code, knows_abortable=request.version >= _FIRST_ABORTABLE)
    # Retried by every client that commits offsets, which the code of producers is not.
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if code is ErrorCode.NOT_ENOUGH_REPLICAS else code


def _take_unknown(message: TxnOffsetCommitRequest, services: Services) -> list[Answered]:
    """The partitions that do not exist, taken out of the request."""
    refused = []
    for topic in message.topics:
        # Each once, and looked up by its hash: a request may name a hundred thousand.
        unknown = dict.fromkeys(
            partition.partition_index
            for partition in topic.partitions
            if services.partitions.get(topic.name, partition.partition_index) is None
        )
        if unknown:
            topic.partitions = [one for one in topic.partitions if one.partition_index not in unknown]
            refused.append(
                Answered(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                            partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        )
                        for index in unknown
                    ],
                )
            )
    message.topics = [topic for topic in message.topics if topic.partitions]
    return refused
