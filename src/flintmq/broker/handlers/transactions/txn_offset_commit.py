"""TxnOffsetCommit (28), versions 0–5: offsets that count once the transaction is committed.

From version 5 on the group's partition of the offsets topic is added to the transaction by this request; before, it
must have been added already. Until the marker comes the offsets are pending (KIP-447).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flintmq.broker.authorization import is_allowed
from flintmq.broker.coordinator_calls import CoordinatorCall, DelayedResponse
from flintmq.broker.request import Request
from flintmq.broker.transaction_verification import verification_error
from flintmq.coordinator.groups.offset_commits import transactional_commit_refused
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

# Looked up once: a member of an enum costs a call each time.
_WRITE: Final = AclOperation.WRITE
_READ: Final = AclOperation.READ
_TRANSACTIONAL_ID: Final = AclResource.TRANSACTIONAL_ID
_GROUP: Final = AclResource.GROUP
_TOPIC: Final = AclResource.TOPIC

_FIRST_ADDING: Final = 5
_FIRST_ABORTABLE: Final = 4
_WAIT_S: Final = 0.1

CommittedTopic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic


def handle(
    request: Request, message: TxnOffsetCommitRequest, services: Services
) -> TxnOffsetCommitResponse | None:
    name = message.transactional_id
    if not is_allowed(request, services, _WRITE, _TRANSACTIONAL_ID, name):
        return transactional_commit_refused(message, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not is_allowed(request, services, _READ, _GROUP, message.group_id):
        return transactional_commit_refused(message, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused = _take_refused(request, message, services)
    if not message.topics and refused:
        return TxnOffsetCommitResponse(topics=refused)

    def with_refused(response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
        response.topics += refused
        return response

    response = DelayedResponse(
        request, lambda code: with_refused(transactional_commit_refused(message, code))
    )

    def commit() -> None:
        response.call(
            services.groups,
            CoordinatorCall(
                message.group_id,
                lambda groups, token: groups.commit_offsets_in_transaction(
                    token, message, request.version, services.clock.now_ms()
                ),
            ),
            lambda committed: response.send(with_refused(committed)),
        )

    services.groups.with_topic(
        lambda: _verify(request, message, services, commit, response.fail), response.fail
    )
    return None


def _verify(
    request: Request,
    message: TxnOffsetCommitRequest,
    services: Services,
    commit: Callable[[], object],
    fail: Callable[[ErrorCode], object],
) -> None:
    """Call `commit` if the group's offsets take part in the transaction, from version 5 on after adding them."""
    transactions, version = services.transactions, request.version
    name, producer = message.transactional_id, (message.producer_id, message.producer_epoch)
    partition = services.groups.topic, services.groups.index_of(message.group_id)

    def add_or_verify(then: Callable[[ErrorCode], object]) -> None:
        transactions.add_or_verify(
            name,
            *producer,
            [partition],
            adds=version >= _FIRST_ADDING,
            done=lambda codes: then(codes[partition]),
        )

    def finish_or_retry(code: ErrorCode) -> None:
        if code is ErrorCode.CONCURRENT_TRANSACTIONS:
            transactions.when_complete(name, _WAIT_S, lambda: add_or_verify(finish))
        else:
            finish(code)

    offsets_partition = services.partitions.get(*partition)
    if offsets_partition is not None:
        offsets_partition.begin_verification(message.producer_id, message.producer_epoch)

    def is_open() -> bool:
        if transactions.is_here(name):
            return transactions.takes_part(name, *producer, partition)
        return offsets_partition is not None and (
            offsets_partition.log.producers.has_open_transaction(*producer)
            or offsets_partition.is_verifying(message.producer_id)
        )

    def finish(code: ErrorCode) -> None:
        if code is ErrorCode.NONE and not is_open():
            code = ErrorCode.INVALID_TXN_STATE
        if code is ErrorCode.NONE:
            commit()
            return
        code = verification_error(code, knows_abortable=version >= _FIRST_ABORTABLE)
        # Clients that commit offsets retry this one; they do not retry the code that producers get.
        fail(ErrorCode.COORDINATOR_NOT_AVAILABLE if code is ErrorCode.NOT_ENOUGH_REPLICAS else code)

    add_or_verify(finish_or_retry)


def _take_refused(
    request: Request, message: TxnOffsetCommitRequest, services: Services
) -> list[CommittedTopic]:
    """Take what does not exist or may not be read out of the request, and return its part of the response."""
    image = services.metadata.image
    refused = []
    for topic in message.topics:
        is_readable = is_allowed(request, services, _READ, _TOPIC, topic.name)
        # Each once, and looked up by its hash: a request may name a hundred thousand.
        unknown = dict.fromkeys(
            partition.partition_index
            for partition in topic.partitions
            if not is_readable or not image.has_partition(topic.name, partition.partition_index)
        )
        if unknown:
            topic.partitions = [one for one in topic.partitions if one.partition_index not in unknown]
            refused.append(
                CommittedTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                            partition_index=index,
                            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                            if is_readable
                            else ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                        )
                        for index in unknown
                    ],
                )
            )
    message.topics = [topic for topic in message.topics if topic.partitions]
    return refused
