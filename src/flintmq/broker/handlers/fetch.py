"""Fetch (1), versions 4–18: records from many partitions, at once or when enough have arrived (B5).

Sessions from version 7 on (KIP-227), topic ids from 13 on (KIP-516), divergence of epochs from 12 on. A fetch
that finds fewer than `min_bytes` is parked on its partitions with one timer, and woken by the append; it reads
again only what changed since. Visible is what lies below the high watermark, or below the last stable offset
for read_committed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from flintmq.broker.authorization import is_cluster_allowed
from flintmq.broker.fetch_sessions import FetchContext, FetchPartition
from flintmq.broker.request import Request
from flintmq.broker.responses import finish_response, start_response
from flintmq.broker.throttling import throttle_fetch
from flintmq.effects import Timer
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.partitions.leadership import current_leader, end_of_epoch, led_partition, readable_partition
from flintmq.partitions.partition import ROLE_CHANGED, Partition, Role
from flintmq.protocol.fetch import FetchedPartition, decode_request, encode_response, size_of
from flintmq.protocol.leader_hints import NodeEndpoint
from flintmq.protocol.messages import FetchRequest
from flintmq.security.authorization.model import AclOperation, AclResource, operation_bits
from flintmq.storage import reader
from flintmq.storage.log import Log
from flintmq.storage.segment import FileRange
from flintmq.storage.visibility import Isolation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

logger: Final = logging.getLogger(__name__)

_FIRST_FOLLOWER_FETCH: Final = 11
_FIRST_REPLICA_STATE: Final = 15
_MAY_READ: Final = operation_bits((AclOperation.READ,))
_RESPONSE_SIZE: Final = 24
_PARTITION_SIZE: Final = 46
_LED_ELSEWHERE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
# A client that asks for the wrong thing is told so; the log is for what an operator must see.
_OUR_FAULT: Final = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR)


def handle(request: Request, services: Services) -> None:
    assert request.frame is not None
    message = decode_request(request.frame, request.body_position, request.version)
    context = services.sessions.context(message, request.version)
    _Fetch(request, message, context, services).start()


class _Fetch:
    """One fetch, from its first read to its answer. A Reader of the partitions it waits for."""

    __slots__ = (
        "_arrived", "_broker_epoch", "_changed", "_context", "_is_noted", "_isolation", "_max_bytes",
        "_max_wait_ms", "_min_bytes", "_parked", "_rack_id", "_replica_id", "_request", "_results", "_services",
        "_timer", "_urgent",
    )  # fmt: skip

    def __init__(
        self, request: Request, message: FetchRequest, context: FetchContext, services: Services
    ) -> None:
        self._request = request
        self._context = context
        self._services = services
        self._isolation = (
            Isolation.READ_COMMITTED if message.isolation_level == 1 else Isolation.READ_UNCOMMITTED
        )
        self._broker_epoch = -1
        if request.version >= _FIRST_REPLICA_STATE:
            self._replica_id = message.replica_state.replica_id
            self._broker_epoch = message.replica_state.replica_epoch
        else:
            self._replica_id = message.replica_id
        if self._replica_id >= 0:
            self._isolation = Isolation.LOG_END
        self._is_noted = False
        """Whether a follower's positions are noted: a fetch that waited shows nothing new when it reads again."""
        self._rack_id = message.rack_id
        self._max_wait_ms = message.max_wait_ms
        self._max_bytes = min(message.max_bytes, services.configs.broker.fetch_max_bytes)
        if request.limits is not None and request.limits.fetch is not None:
            # What would be too much for any response would never be read.
            self._max_bytes = min(self._max_bytes, int(request.limits.fetch.window_limit()))
        self._min_bytes = min(message.min_bytes, self._max_bytes)
        self._results: dict[FetchPartition, FetchedPartition] = {}
        self._urgent = False
        self._arrived = 0
        self._parked: dict[Partition, list[FetchPartition]] = {}
        self._changed: dict[Partition, None] = {}
        self._timer: Timer | None = None

    def start(self) -> None:
        context = self._context
        size = self._read(context.wanted)
        self._is_noted = True
        if (
            size >= self._min_bytes
            or self._urgent
            or self._max_wait_ms <= 0
            or not context.wanted
            or context.error is not ErrorCode.NONE
            or not self._services.parked_fetches.may_wait(len(context.wanted))
        ):
            self._request.response = self._encode()
        else:
            self._park(size)

    # ---- reading

    def _read(self, wanted: list[FetchPartition]) -> int:
        """Read these partitions anew; the size of all that is found, theirs and the others'."""
        for one in wanted:
            self._results.pop(one, None)
        size = sum(result.records.size for result in self._results.values() if result.records is not None)
        denied = None if self._services.authorizer is None else self._denied(wanted)
        for one in wanted:
            if denied is not None and one.topic in denied:
                result = FetchedPartition(one.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED, aborted=())
            else:
                result = self._read_one(one, self._max_bytes - size, at_least_one=size == 0)
            self._results[one] = result
            if result.records is not None:
                size += result.records.size
            if result.error_code or result.diverging is not None or result.preferred_replica >= 0:
                self._urgent = True
        return size

    def _denied(self, wanted: list[FetchPartition]) -> set[str | bytes] | None:
        """Return the topics that the client may not read now; None if there are none."""
        authorizer = self._services.authorizer
        assert authorizer is not None
        if self._replica_id >= 0:
            if is_cluster_allowed(self._request, self._services, AclOperation.CLUSTER_ACTION):
                return None
            return {one.topic for one in wanted}
        denied: set[str | bytes] | None = None
        rights = authorizer.rights(self._request.session)
        last: str | bytes | None = None
        for one in wanted:
            topic = one.topic
            if topic == last:
                continue
            last = topic
            if not authorizer.topic_operations(rights, topic) & _MAY_READ:
                authorizer.denied(
                    AclOperation.READ, self._request.session, AclResource.TOPIC, topic, self._request.api.name
                )
                if denied is None:
                    denied = set()
                denied.add(topic)
        if authorizer.audits_allowed:
            topics = dict.fromkeys([one.topic for one in wanted])
            authorizer.allowed_topics(
                self._request.session, AclOperation.READ, topics, denied, self._request.api.name
            )
        return denied

    def _read_one(self, wanted: FetchPartition, budget: int, *, at_least_one: bool) -> FetchedPartition:
        try:
            partition = self._find(wanted)
            log = partition.log
            diverging = self._divergence(partition, wanted)
            if self._rack_id and diverging is None and self._replica_id < 0:
                preferred = self._preferred_replica(partition, wanted)
                if preferred >= 0:
                    return self._elsewhere(partition, preferred)
            records = None
            aborted: Sequence[tuple[int, int]] | None = None
            if (
                diverging is None
                and (budget > 0 or at_least_one)
                and (self._replica_id < 0 or not self._is_throttled(partition))
            ):
                records = reader.read(
                    log,
                    wanted.fetch_offset,
                    min(wanted.max_bytes, max(budget, 0)),
                    self._isolation,
                    at_least_one=at_least_one,
                )
                if records is not None and log.config.flint_verify_on_read:
                    reader.verify(log, records)
            if self._isolation is Isolation.READ_COMMITTED:
                aborted = () if records is None else _aborted(log, records, wanted.fetch_offset)
            if self._replica_id >= 0 and diverging is None:
                self._serve_follower(partition, wanted, records)
        except (FlintError, OSError) as error:
            code = error_code_of(error)
            if code in _OUR_FAULT:
                failed = self._services.partitions.get(wanted.topic, wanted.partition)
                name = failed.log.name if failed is not None else "a partition"
                logger.warning("reading %s at offset %d: %s", name, wanted.fetch_offset, error)
            leader = None
            if code in _LED_ELSEWHERE:
                leader = current_leader(self._services.partitions, wanted.topic, wanted.partition)
            return FetchedPartition(wanted.partition, code, current_leader=leader)
        return FetchedPartition(
            wanted.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.start_offset,
            records,
            aborted,
            diverging,
        )

    def _find(self, wanted: FetchPartition) -> Partition:
        partitions = self._services.partitions
        if self._replica_id < 0 and self._request.version >= _FIRST_FOLLOWER_FETCH:
            return readable_partition(partitions, wanted.topic, wanted.partition, wanted.leader_epoch)
        return led_partition(partitions, wanted.topic, wanted.partition, wanted.leader_epoch)

    def _is_throttled(self, partition: Partition) -> bool:
        replication = self._services.replication
        return replication is not None and replication.is_throttled(partition, self._replica_id)

    def _serve_follower(
        self, partition: Partition, wanted: FetchPartition, records: FileRange | None
    ) -> None:
        """Note how far a follower has come: it has all below the offset that it asks for.

        ORDER: only after the read has shown that the offset exists here.
        """
        replication = self._services.replication
        if replication is not None and records is not None:
            replication.count_sent(partition, self._replica_id, records.size)
        if self._is_noted:
            return
        if replication is None or not replication.follower_fetched(
            partition,
            self._replica_id,
            broker_epoch=self._broker_epoch,
            offset=wanted.fetch_offset,
            start_offset=wanted.log_start_offset,
        ):
            # As Kafka has it: a follower that knows the epoch knows more than this broker.
            knows_epoch = wanted.leader_epoch >= 0
            raise RequestError(
                ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Broker {self._replica_id} holds no replica of {partition.log.name}.",
            )

    def _preferred_replica(self, partition: Partition, wanted: FetchPartition) -> int:
        """Return the follower in the consumer's rack that it should fetch from; -1 if it should stay here."""
        replication = self._services.replication
        if replication is None or partition.role is not Role.LEADER:
            return -1
        return replication.preferred_replica(partition, self._rack_id, wanted.fetch_offset)

    @staticmethod
    def _elsewhere(partition: Partition, preferred: int) -> FetchedPartition:
        log = partition.log
        return FetchedPartition(
            partition.index,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.start_offset,
            preferred_replica=preferred,
        )

    @staticmethod
    def _divergence(partition: Partition, wanted: FetchPartition) -> tuple[int, int] | None:
        """KIP-595: a reader whose last epoch ended elsewhere must go back."""
        if wanted.last_fetched_epoch < 0:
            return None
        epoch, end_offset = end_of_epoch(partition, wanted.last_fetched_epoch)
        if epoch < 0:
            raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE, "The last fetched epoch is not known here.")
        if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
            return epoch, end_offset
        return None

    # ---- waiting

    def _park(self, size: int) -> None:
        self._arrived = size
        self._services.parked_fetches.partitions += len(self._context.wanted)
        for wanted in self._context.wanted:
            partition = self._services.partitions.get(wanted.topic, wanted.partition)
            if partition is not None:
                self._parked.setdefault(partition, []).append(wanted)
                partition.park(self, is_follower=self._replica_id >= 0)
        self._request.delayed = self
        self._timer = self._services.timers.call_later(self._max_wait_ms / 1000, self.expire)

    def cancel(self) -> None:
        for partition in self._parked:
            partition.unpark(self)
        self._parked.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._request.delayed is not None:
            self._services.parked_fetches.partitions -= len(self._context.wanted)
        self._request.delayed = None

    def records_arrived(self, partition: Partition, size: int) -> None:
        if self._request.delayed is None:
            return  # answered or cancelled by one that was woken in the same turn
        self._changed[partition] = None
        if size != ROLE_CHANGED:
            self._arrived += size
            if self._arrived < self._min_bytes and partition.log.offline is None:
                return
        self._arrived = self._reread()
        if self._arrived >= self._min_bytes or self._urgent:
            self._respond()

    def _reread(self) -> int:
        wanted = [one for partition in self._changed for one in self._parked.get(partition, ())]
        self._changed.clear()
        return self._read(wanted)

    def expire(self) -> None:
        self._reread()
        self._respond()

    def _respond(self) -> None:
        self.cancel()
        try:
            response = self._encode()
        except Exception as error:
            # Others are woken in the same turn of the loop: what is wrong here must not reach them.
            logger.exception("a fetch of %s could not be answered", self._request.session.peer)
            self._request.connection.refuse(f"Fetch could not be answered: {error}")
            return
        self._request.respond(response)

    # ---- answering

    def _encode(self) -> list:  # type: ignore[type-arg]
        limits = self._request.limits
        if limits is not None:
            throttle_ms = throttle_fetch(self._request, limits, self._response_size())
            if throttle_ms:
                return self._encode_throttled(throttle_ms)
        context = self._context
        topics: list[tuple[str | bytes, list[FetchedPartition]]] = []
        served = []
        has_errors = False
        for wanted in context.wanted:
            result = self._results[wanted]
            if result.records is not None:
                served.append(wanted)
            elif result.error_code:
                has_errors = True
                self._request.failed(result.error_code)
            if context.session is not None:
                if context.incremental and not wanted.differs_from(result):
                    continue
                wanted.remember(result)
            if not topics or topics[-1][0] != wanted.topic:
                topics.append((wanted.topic, []))
            topics[-1][1].append(result)
        if context.session is not None:
            context.session.served(served)
        request = self._request
        if context.error:
            request.failed(context.error)
        response = encode_response(
            start_response(request),
            request.version,
            throttle_ms=0,
            error_code=context.error,
            session_id=context.session_id,
            topics=topics,
            endpoints=self._leaders(topics) if has_errors else (),
        )
        finish_response(response[0], size_of(response))  # type: ignore[arg-type]
        return response

    def _leaders(self, topics: list[tuple[str | bytes, list[FetchedPartition]]]) -> list[NodeEndpoint]:
        """Return the endpoints of the leaders that the results name (KIP-951)."""
        nodes = dict.fromkeys(
            [
                one.current_leader[0]
                for _, results in topics
                for one in results
                if one.current_leader is not None
            ]
        )
        session = self._request.session
        found = [self._services.endpoints.of_node(node, session) for node in nodes]
        return [endpoint for endpoint in found if endpoint is not None]

    def _response_size(self) -> int:
        """Return about how large the response is: the records, and what describes them."""
        size = _RESPONSE_SIZE
        for result in self._results.values():
            size += _PARTITION_SIZE
            if result.records is not None:
                size += result.records.size
        return size

    def _encode_throttled(self, throttle_ms: int) -> list:  # type: ignore[type-arg]
        """Return a response without partitions (KIP-219). The client asks for all of them again.

        A session that this request would have begun is dropped: the client has learned of no partition in it.
        """
        request, context = self._request, self._context
        if context.session is not None and not context.incremental:
            self._services.sessions.drop(context.session_id)
            context.session = None
        if context.error:
            request.failed(context.error)
        response = encode_response(
            start_response(request),
            request.version,
            throttle_ms=throttle_ms,
            error_code=context.error,
            session_id=context.session_id,
            topics=[],
        )
        finish_response(response[0], size_of(response))  # type: ignore[arg-type]
        return response


def _aborted(log: Log, records: FileRange, offset: int) -> list[tuple[int, int]]:
    """As the protocol tells of them: whose, and from which offset on."""
    return [(one.producer_id, one.first_offset) for one in reader.aborted_transactions(log, records, offset)]
