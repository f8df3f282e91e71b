"""Produce (0), versions 3–13: append one batch to each partition named.

acks=0 has no response, and an error closes the connection, for the client has no other way to learn of it;
acks=1 and acks=all get their response when the records are visible (at once, or after the fsync with
`flush.messages=1`). From version 13 on topics are named by id. zstd needs version 7.
The frame is read in place: batches go from the receive buffer to the log. Only where something has to be awaited
(a topic that is created, a transaction that is verified, a batch that is validated or recompressed) is the frame
copied and handled in a task, with a barrier, so that order is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from flintmq.broker.authorization import is_allowed, is_cluster_allowed
from flintmq.broker.request import Request, ResponseBuffers
from flintmq.broker.responses import finish_response, reason_of, start_response
from flintmq.broker.throttling import NEVER_REJECTED, MutationQuota, throttle_produce
from flintmq.broker.transaction_verification import TransactionVerification
from flintmq.effects import Timer
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.metadata.topics import NewTopic
from flintmq.partitions.leadership import current_leader, led_partition
from flintmq.partitions.partition import Partition
from flintmq.protocol.leader_hints import NodeEndpoint
from flintmq.protocol.produce import (
    ProducedPartition,
    ProduceRequest,
    decode_request,
    encode_response,
)
from flintmq.records.batch import HEADER_SIZE, TRANSACTIONAL, BatchHeader, read_header
from flintmq.records.record import RecordError
from flintmq.security.authorization.model import AclOperation, AclResource, operation_bits

if TYPE_CHECKING:
    from flintmq.broker.services import Services

logger: Final = logging.getLogger(__name__)

_FIRST_ZSTD: Final = 7
ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1
_MAY_WRITE: Final = operation_bits((AclOperation.WRITE,))
_ACKS: Final = (ACKS_NONE, ACKS_LEADER, ACKS_ALL)


def handle(request: Request, services: Services) -> Awaitable[None] | None:
    assert request.frame is not None
    message = decode_request(request.frame, request.body_position, request.version)
    denied = None if services.authorizer is None else _denied_topics(request, message, services)
    verification = None
    is_plain = _is_plain(message, services)
    if is_plain and message.transactional_id is not None:
        verification = TransactionVerification(message, request.version, services, denied)
        is_plain = verification.is_complete
    if is_plain:
        _Produce(request, message, services, verification, denied).run(message, services)
        return None
    request.barrier = True
    copied = memoryview(bytearray(request.frame))
    message = decode_request(copied, request.body_position, request.version)
    return _Produce(request, message, services, verification, denied).prepare_and_run(message, services)


def _denied_topics(
    request: Request, message: ProduceRequest, services: Services
) -> dict[str | bytes, ErrorCode] | None:
    """Return the topics that the client may not write to, with their error codes; None if there are none."""
    authorizer = services.authorizer
    assert authorizer is not None
    name = message.transactional_id
    if (
        name is not None
        and _is_transactional(message)
        and not authorizer.allows(
            request.session, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, name, request.api.name
        )
    ):
        return dict.fromkeys(
            [topic for topic, _ in message.topics], ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
    denied: dict[str | bytes, ErrorCode] | None = None
    rights = authorizer.rights(request.session)
    for topic, _ in message.topics:
        if authorizer.topic_operations(rights, topic) & _MAY_WRITE:
            continue
        authorizer.denied(AclOperation.WRITE, request.session, AclResource.TOPIC, topic, request.api.name)
        if denied is None:
            denied = {}
        denied[topic] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if authorizer.audits_allowed:
        topics = [topic for topic, _ in message.topics]
        authorizer.allowed_topics(request.session, AclOperation.WRITE, topics, denied, request.api.name)
    return denied


def _is_transactional(message: ProduceRequest) -> bool:
    """Return whether one of the batches belongs to a transaction."""
    for _, batches in message.topics:
        for _, records in batches:
            if (
                records is not None
                and len(records) >= HEADER_SIZE
                and read_header(records).attributes & TRANSACTIONAL
            ):
                return True
    return False


def _is_plain(message: ProduceRequest, services: Services) -> bool:
    """Return whether no topic must be created and no batch validated, both of which are awaited."""
    create = services.configs.broker.flint_auto_create_topics_on_produce
    if not create and not services.partitions.validating:
        return True
    for topic, batches in message.topics:
        for index, _ in batches:
            partition = services.partitions.get(topic, index)
            if partition is None:
                if create and isinstance(topic, str) and topic not in services.metadata.image.topics:
                    return False
            elif partition.requires_validation:
                return False
    return True


class _PreparedBatch:
    """A batch that was checked, and rewritten as the topic wants it."""

    __slots__ = ("header", "records")

    def __init__(self, records: memoryview, header: BatchHeader) -> None:
        self.records = records
        self.header = header


_Batch: TypeAlias = memoryview | _PreparedBatch | None
"""As it was received, prepared, or missing."""


class _Produce:
    """One request in progress: what was appended, and what is still to become visible."""

    __slots__ = (
        "_acks", "_denied", "_finished", "_names_leaders", "_request", "_results", "_services", "_timeout_ms",
        "_timer", "_verification", "_waiting",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        message: ProduceRequest,
        services: Services,
        verification: TransactionVerification | None,
        denied: dict[str | bytes, ErrorCode] | None,
    ) -> None:
        self._request = request
        self._services = services
        self._names_leaders = False
        self._verification = verification
        self._denied = denied
        self._acks = message.acks
        self._timeout_ms = message.timeout_ms
        self._results: list[tuple[str | bytes, list[ProducedPartition]]] = []
        # Results that are not visible yet, by their positions.
        self._waiting: set[tuple[int, int]] = set()
        # Every batch has its result; until then no response is sent, whatever becomes visible meanwhile.
        self._finished = False
        self._timer: Timer | None = None

    def run(self, message: ProduceRequest, services: Services) -> None:
        """Append every batch, then respond."""
        now_ms = services.clock.now_ms()
        for topic, batches in message.topics:
            results: list[ProducedPartition] = []
            self._results.append((topic, results))
            for index, records in batches:
                self._append(services, results, topic, index, records, now_ms)
        self._finish(services)

    async def prepare_and_run(self, message: ProduceRequest, services: Services) -> None:
        """Do the same where something must be awaited first.

        Batches are prepared one at a time: a request must not hold several that were decompressed.
        """
        if message.transactional_id is not None:
            await self._verify_transaction(message, services)
        for topic, batches in message.topics:
            results: list[ProducedPartition] = []
            self._results.append((topic, results))
            for index, records in batches:
                try:
                    batch = await self._prepare(services, topic, index, records)
                except (FlintError, OSError) as error:
                    results.append(self._failure(topic, index, error))
                else:
                    self._append(services, results, topic, index, batch, services.clock.now_ms())
        self._finish(services)

    async def _prepare(
        self, services: Services, topic: str | bytes, index: int, records: memoryview | None
    ) -> _Batch:
        if records is None or self._acks not in _ACKS or (self._denied is not None and topic in self._denied):
            return records
        await self._create_if_missing(services, topic)
        partition = self._partition(services, topic, index)
        header = self._check(partition, records, services.clock.now_ms())
        if partition.must_validate(header):
            return await _validate(services, partition, records, header)
        return _PreparedBatch(records, header)

    async def _create_if_missing(self, services: Services, topic: str | bytes) -> None:
        if (
            isinstance(topic, str)
            and topic not in services.metadata.image.topics
            and services.configs.broker.flint_auto_create_topics_on_produce
            and (self._denied is None or topic not in self._denied)
        ):
            if not is_cluster_allowed(
                self._request, services, AclOperation.CREATE, counted=False
            ) and not is_allowed(self._request, services, AclOperation.CREATE, AclResource.TOPIC, topic):
                raise RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            try:
                await services.topics.create(NewTopic(topic))
                MutationQuota(self._request, NEVER_REJECTED).record(services.configs.broker.num_partitions)
            except RequestError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

    def _check(self, partition: Partition, records: memoryview, now_ms: int) -> BatchHeader:
        return partition.check(records, now_ms, zstd_allowed=self._request.version >= _FIRST_ZSTD)

    async def _verify_transaction(self, message: ProduceRequest, services: Services) -> None:
        """ORDER: a topic that the request makes is there BEFORE its partitions are added to the transaction."""
        if self._verification is None:
            for topic, _ in message.topics:
                with suppress(
                    FlintError, OSError
                ):  # raised again for each partition when its batch is written
                    await self._create_if_missing(services, topic)
            self._verification = TransactionVerification(
                message, self._request.version, services, self._denied
            )
        await self._verification.complete()

    def _partition(self, services: Services, topic: str | bytes, index: int) -> Partition:
        if self._denied is not None and topic in self._denied:
            raise RequestError(self._denied[topic])
        if self._acks not in _ACKS:
            raise RequestError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={self._acks} is not 0, 1 or -1.")
        partition = led_partition(services.partitions, topic, index)
        if partition.is_internal:
            raise RequestError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is written by coordinators only."
            )
        if self._acks == ACKS_ALL and not partition.has_min_isr:
            raise RequestError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(partition.isr)} replicas are in sync; min.insync.replicas is "
                f"{partition.log.config.min_insync_replicas}.",
            )
        return partition

    def _append(
        self,
        services: Services,
        results: list[ProducedPartition],
        topic: str | bytes,
        index: int,
        batch: _Batch,
        now_ms: int,
    ) -> None:
        """Append one batch, or note why not. A batch as it was received is checked; a prepared one has been."""
        try:
            partition = self._partition(services, topic, index)
            if isinstance(batch, memoryview):
                records, header = batch, self._check(partition, batch, now_ms)
            elif batch is not None:
                records, header = batch.records, batch.header
            else:
                raise RequestError(ErrorCode.INVALID_RECORD, "The partition has no records.")
            if header.attributes & TRANSACTIONAL:
                self._check_transaction(partition, header)
            appended = partition.append(records, header, now_ms)
        except (FlintError, OSError) as error:
            results.append(self._failure(topic, index, error))
            return
        log = partition.log
        results.append(
            ProducedPartition(
                partition.index, 0, appended.base_offset, appended.append_time_ms, log.start_offset
            )
        )
        last_offset = appended.last_offset
        if last_offset < log.high_watermark or self._acks == ACKS_NONE:
            return
        if self._acks == ACKS_LEADER and partition.is_written(last_offset):
            return
        position = (len(self._results) - 1, len(results) - 1)
        self._waiting.add(position)
        if self._acks == ACKS_LEADER:
            partition.when_written(last_offset, lambda failure: self._visible(position, failure))
        else:
            partition.when_visible(last_offset, lambda failure: self._visible(position, failure))

    def _check_transaction(self, partition: Partition, header: BatchHeader) -> None:
        """Check directly before the batch is written: whatever was awaited may have outlived the transaction."""
        if self._verification is None:
            raise RequestError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "A transactional batch needs a request with its transactional id.",
            )
        self._verification.check(partition, header)

    def _visible(self, position: tuple[int, int], failure: FlintError | None) -> None:
        if position not in self._waiting:
            return
        self._waiting.discard(position)
        if failure is not None:
            topic_at, at = position
            topic, results = self._results[topic_at]
            results[at] = self._failure(topic, results[at].partition, failure)
        if not self._waiting and self._finished:
            if self._timer is not None:
                self._timer.cancel()
            self._request.respond(self._encode())

    def _finish(self, services: Services) -> None:
        self._finished = True
        if self._waiting:
            self._timer = services.timers.call_later(self._timeout_ms / 1000, self._timed_out)
            return
        if self._acks != ACKS_NONE:
            self._request.respond(self._encode())
            return
        if self._request.limits is not None:
            throttle_produce(self._request, self._request.limits, has_response=False)
        self._request.respond([])
        failed = [one for _, results in self._results for one in results if one.error_code]
        if failed:
            self._request.connection.refuse(
                f"a produce request with acks=0 failed: {ErrorCode(failed[0].error_code).name}"
            )

    def _timed_out(self) -> None:
        for topic_at, at in self._waiting:
            results = self._results[topic_at][1]
            results[at] = ProducedPartition(results[at].partition, ErrorCode.REQUEST_TIMED_OUT)
            self._request.failed(ErrorCode.REQUEST_TIMED_OUT)
        self._waiting.clear()
        self._request.respond(self._encode())

    def _failure(self, topic: str | bytes, index: int, error: Exception) -> ProducedPartition:
        code = error_code_of(error)
        self._request.failed(code)
        if code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR):
            logger.error("writing to %s-%d failed: %s", topic, index, error)
        message = reason_of(error) if str(error) != code.name else None
        faults = error.faults if isinstance(error, RecordError) else ()
        leader = None
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader = current_leader(self._services.partitions, topic, index)
            self._names_leaders = leader is not None
        return ProducedPartition(
            index, code, error_message=message, record_errors=faults, current_leader=leader
        )

    def _encode(self) -> ResponseBuffers:
        request = self._request
        throttle_ms = 0
        if request.limits is not None:
            throttle_ms = throttle_produce(request, request.limits, has_response=True)
        out = start_response(request)
        encode_response(
            out, request.version, self._results, throttle_ms, self._leaders() if self._names_leaders else ()
        )
        finish_response(out, len(out))
        return [out]

    def _leaders(self) -> list[NodeEndpoint]:
        """Return the endpoints of the leaders that the results name (KIP-951)."""
        nodes: dict[int, None] = {}
        for _, results in self._results:
            for one in results:
                if one.error_code and one.current_leader is not None:
                    nodes[one.current_leader[0]] = None
        found = [self._services.endpoints.of_node(node, self._request.session) for node in nodes]
        return [endpoint for endpoint in found if endpoint is not None]


async def _validate(
    services: Services, partition: Partition, records: memoryview, header: BatchHeader
) -> _PreparedBatch:
    """Return the batch as the topic wants it, with its header."""

    def validate() -> bytes:
        # Copied only when its turn has come, for many may wait.
        return partition.validate_batch(bytes(records), header)

    batch = memoryview(bytearray(await services.batch_validation.run(services.executor, validate)))
    if partition.deleted:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    # Recompression changed the header; the checks that were made still hold.
    return _PreparedBatch(batch, read_header(batch))
