"""What a workload is given: a running broker, topics on it, and further brokers of the same kind, fresh.

Invariant: a topic made here can be written and read when the workload gets it, and is deleted afterwards; a
fresh broker is gone afterwards.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from bench.figures import Cost, Figure
from bench.loads import ProducerIdentity, Topic, refuse
from bench.process import Broker, Meter
from bench.tls import CIPHER, client_context
from bench.wire import Connection
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

PARTITIONS: Final = 6
LATEST: Final = -1

_CREATE_VERSION: Final = 7
_DELETE_VERSION: Final = 6
_ALTER_CONFIGS_VERSION: Final = 1
_SET, _DELETE = 0, 1
_INIT_PRODUCER_ID_VERSION: Final = 4
LIST_OFFSETS_VERSION: Final = 9
_WAIT_S: Final = 60.0
_POLL_S: Final = 0.01
_TIMEOUT_MS: Final = 60_000

_names = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    summary: str
    run: Callable[[Target], list[Figure]]
    needs_librdkafka: bool = False
    needs_tls: bool = False


@dataclass(slots=True)
class Target:
    broker: Broker
    scale: float
    recovery_gb: float
    costs: list[Cost] = field(default_factory=list)
    """Of every span measured so far."""

    def scaled(self, count: float, *, least: int = 1) -> int:
        return max(least, int(count * self.scale))

    @contextmanager
    def measured(self) -> Iterator[Meter]:
        with Meter(self.broker) as meter:
            yield meter
        self.costs.append(meter.cost)

    def connect(self, *, buffer_bytes: int = 64 * 1024, tls: bool = False) -> Connection:
        home = self.broker.home
        if not tls:
            return Connection(home.port, buffer_bytes=buffer_bytes)
        assert home.tls is not None, "the broker has no listener with TLS"
        connection = Connection(home.tls_port, buffer_bytes=buffer_bytes, tls=client_context(home.tls))
        if connection.cipher != CIPHER:
            connection.close()
            raise AssertionError(f"the broker chose {connection.cipher}; brokers are compared on {CIPHER}")
        return connection

    @contextmanager
    def topic(
        self, partitions: int = PARTITIONS, settings: Mapping[str, str] | None = None
    ) -> Iterator[Topic]:
        with self.connect() as connection:
            (topic,) = create_topics(connection, [f"bench-{next(_names)}"], partitions, settings)
            wait_until_led(connection, topic)
            try:
                yield topic
            finally:
                if self.broker.is_running:
                    delete_topics(connection, [topic.name])

    @contextmanager
    def fresh(self) -> Iterator[tuple[Target, float]]:
        """Another broker of the same kind in an empty folder, and the seconds it took to start."""
        folder = os.path.join(os.path.dirname(self.broker.home.folder), f"fresh-{next(_names)}")
        with Broker(self.broker.peer, folder, self.broker.cores) as broker:
            start_s = broker.start()
            yield Target(broker, self.scale, self.recovery_gb, self.costs), start_s


def create_topics(
    connection: Connection, names: Sequence[str], partitions: int, settings: Mapping[str, str] | None = None
) -> list[Topic]:
    configs = [
        CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
        for name, value in (settings or {}).items()
    ]
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=1, configs=configs
            )
            for name in names
        ],
        timeout_ms=_TIMEOUT_MS,
    )
    answer = connection.call(request, CreateTopicsResponse, _CREATE_VERSION)
    for one in answer.topics:
        refuse(one.error_code, one.error_message)
    return [Topic(one.name, one.topic_id, partitions) for one in answer.topics]


def delete_topics(connection: Connection, names: Sequence[str]) -> None:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in names], timeout_ms=_TIMEOUT_MS
    )
    for one in connection.call(request, DeleteTopicsResponse, _DELETE_VERSION).responses:
        refuse(one.error_code, one.error_message)


def alter_configs(
    connection: Connection, resource_type: int, name: str, settings: Mapping[str, str | None]
) -> None:
    """Set these; None takes a setting away."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=setting, config_operation=_SET if value is not None else _DELETE, value=value
            )
            for setting, value in settings.items()
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    for one in connection.call(request, IncrementalAlterConfigsResponse, _ALTER_CONFIGS_VERSION).responses:
        refuse(one.error_code, one.error_message)


def list_offsets_request(topic: Topic) -> ListOffsetsRequest:
    """The end of every partition."""
    partitions = [
        ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=LATEST)
        for index in range(topic.partitions)
    ]
    return ListOffsetsRequest(
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic.name, partitions=partitions)]
    )


def end_offsets(connection: Connection, topic: Topic) -> list[int] | None:
    """Of all partitions in order, or None while any of them cannot be asked yet."""
    answer = connection.call(list_offsets_request(topic), ListOffsetsResponse, LIST_OFFSETS_VERSION)
    found = {one.partition_index: one for named in answer.topics for one in named.partitions}
    if any(one.error_code for one in found.values()) or len(found) < topic.partitions:
        return None
    return [found[index].offset for index in range(topic.partitions)]


def wait_until_led(connection: Connection, topic: Topic) -> None:
    """A topic may be created before its partitions have leaders."""
    deadline = time.monotonic() + _WAIT_S
    while end_offsets(connection, topic) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic.name} has partitions without leaders after {_WAIT_S} s")
        time.sleep(_POLL_S)


def producer_identity(connection: Connection) -> ProducerIdentity:
    deadline = time.monotonic() + _WAIT_S
    while True:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TIMEOUT_MS)
        answer = connection.call(request, InitProducerIdResponse, _INIT_PRODUCER_ID_VERSION)
        loading = answer.error_code in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )
        if not loading or time.monotonic() > deadline:
            refuse(answer.error_code)
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)
        time.sleep(_POLL_S)
