"""A whole single broker without sockets, in virtual time on a simulated disk: frames in, frames out."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Mapping, Sequence
from typing import TypeVar

from flintmq.app.authorization import AuthorizationSource
from flintmq.broker.dispatch import Dispatcher
from flintmq.broker.endpoints import Endpoints
from flintmq.broker.fetch_sessions import FetchSessions
from flintmq.broker.request import ClientSession, Request, ResponseBuffers
from flintmq.broker.services import Services
from flintmq.coordinator.groups.coordinator import GroupCoordinator
from flintmq.coordinator.transactions.coordinator import TransactionCoordinator
from flintmq.coordinator.transactions.marker_sender import MARKERS_PER_TURN
from flintmq.coordinator.transactions.marker_writer import MarkerWriter
from flintmq.metadata import keys
from flintmq.metadata.client_quotas import ClientQuotas
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.configs import Configs
from flintmq.metadata.local_store import LocalMetadataStore
from flintmq.metadata.producer_ids import ProducerIds
from flintmq.metadata.scram_credentials import ScramCredentials
from flintmq.metadata.store import Put
from flintmq.metadata.topics import NewTopic, Topics
from flintmq.metrics import Counters
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.maintenance.scheduler import MaintenanceScheduler, TaskLimits
from flintmq.partitions.partition import Partition
from flintmq.protocol import messages
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.header import response_is_flexible
from flintmq.records.record import build_batch
from flintmq.security.authentication.authenticator import SaslAuthenticator
from flintmq.security.authentication.scram_users import ScramUsers
from flintmq.security.delegation_tokens import DelegationTokens
from flintmq.security.principal import ANONYMOUS, Principal
from flintmq.security.quotas.client_quotas import LimitedClients
from flintmq.storage.log_dir import LogDir
from flintmq.testing.simulation import SimulatedDisk, SimulatedExecutor, SimulatedLoop, SimulatedRandom
from support.log.compactions import SimulatedCompactions

NODE_ID = 3
CLUSTER_ID = "a-cluster-of-one-broker"
SEED = 11

M = TypeVar("M", bound=Message)


class Refused(Exception):
    """The broker closed the connection instead of answering."""


class FakeConnection:
    def __init__(self, principal: Principal = ANONYMOUS, session: ClientSession | None = None) -> None:
        self.session = session or ClientSession(
            listener="PLAINTEXT", peer="client:1", local_host="127.0.0.1", local_port=9092
        )
        self.throttled_s = 0.0
        if session is None:
            self.session.principal = principal
        self.answer: asyncio.Future[Request] = asyncio.get_running_loop().create_future()

    def send_response(self, request: Request) -> None:
        self.answer.set_result(request)

    def refuse(self, reason: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(Refused(reason))

    def authenticated(self) -> None:
        """Nothing is limited here."""

    def throttle(self, delay_s: float) -> None:
        self.throttled_s = delay_s

    def reject(self, request: Request, response: ResponseBuffers, reason: str, delay_s: float) -> None:
        self.refuse(reason)


class SingleBroker:
    """What a test may do with the broker; everything has happened when a method returns."""

    def __init__(
        self,
        loop: SimulatedLoop,
        settings: Mapping[str, str],
        disk: SimulatedDisk,
        *,
        task_limits: TaskLimits | None = None,
        markers_per_turn: int = MARKERS_PER_TURN,
    ) -> None:
        self.loop = loop
        self._task_limits = task_limits
        self._markers_per_turn = markers_per_turn
        self.disk = disk
        self.path = "data"
        self.principal = ANONYMOUS
        self._settings = settings
        self._correlation_ids = itertools.count(1)
        self.throttled_s = 0.0
        """For how long the connection of the last request is not read from."""
        loop.run_until_complete(self._start())

    async def _start(self) -> None:
        clock, random = self.loop.clock, SimulatedRandom(SEED)
        executor = SimulatedExecutor(self.loop, SEED)
        log_dir = LogDir(self.path, disk=self.disk, clock=clock, executor=executor, descriptors=64)
        log_dir.check_format()
        store = await LocalMetadataStore.open(
            f"{self.path}/metadata", disk=self.disk, clock=clock, timers=self.loop, executor=executor
        )
        metadata = ClusterMetadata(store)
        await metadata.start()
        await metadata.txn({}, {keys.CLUSTER: Put(keys.encode(keys.ClusterValue(id=CLUSTER_ID)))})
        configs = Configs(metadata.image, self._settings, NODE_ID)
        partitions = LocalPartitions(
            node_id=NODE_ID,
            metadata=metadata,
            configs=configs,
            log_dir=log_dir,
            clock=clock,
            timers=self.loop,
            executor=executor,
        )
        await partitions.load()
        topics = Topics(metadata, configs, random, NODE_ID)
        self.groups = GroupCoordinator(
            lambda: configs.broker,
            metadata=metadata,
            topics=topics,
            partitions=partitions,
            clock=clock,
            timers=self.loop,
            executor=executor,
        )
        self.groups.start()
        producer_ids = ProducerIds(metadata)
        markers = MarkerWriter(partitions, self.groups, clock)
        self.transactions = TransactionCoordinator(
            lambda: configs.broker,
            markers=markers,
            producer_ids=producer_ids,
            metadata=metadata,
            topics=topics,
            partitions=partitions,
            clock=clock,
            timers=self.loop,
            executor=executor,
            markers_per_turn=self._markers_per_turn,
        )
        self.transactions.start()
        self.limited_clients = LimitedClients(lambda: metadata.image.quotas, clock.monotonic)
        metadata.subscribe(lambda delta: self.limited_clients.changed() if delta.quotas else None)
        counters = Counters()
        self.authorization = AuthorizationSource(executor)
        authorizer = self.authorization.create(configs.broker, self._settings, metadata, counters.denials)
        tokens = DelegationTokens(
            lambda: configs.broker, metadata, secret=b"secret", clock=clock, random=random, executor=executor
        )
        self.services = Services(
            node_id=NODE_ID,
            metadata=metadata,
            topics=topics,
            groups=self.groups,
            transactions=self.transactions,
            markers=markers,
            random=random,
            partitions=partitions,
            maintenance=MaintenanceScheduler(
                partitions,
                SimulatedCompactions(self.disk, executor),
                clock=clock,
                executor=executor,
                config=lambda: configs.broker,
                limits=self._task_limits,
            ),
            configs=configs,
            producer_ids=producer_ids,
            sessions=FetchSessions(clock=clock, random=random, slots=16),
            endpoints=Endpoints(node_id=NODE_ID, rack="r1", advertised=[]),
            sasl=SaslAuthenticator(
                lambda: configs.broker,
                scram_users=ScramUsers(lambda: metadata.image.scram, b"secret"),
                tokens=tokens,
                secret=b"secret",
                clock=clock,
                random=random,
                executor=executor,
            ),
            scram_credentials=ScramCredentials(metadata),
            client_quotas=ClientQuotas(metadata),
            limited_clients=self.limited_clients,
            tokens=tokens,
            clock=clock,
            timers=self.loop,
            executor=executor,
            disk=self.disk,
            authorizer=authorizer,
            counters=counters,
        )
        self._dispatcher = Dispatcher(self.services)

    def close(self) -> None:
        async def stop() -> None:
            self.transactions.close()
            self.groups.close()
            await self.services.partitions.close()
            await self.services.metadata.close()

        self.loop.run_until_complete(stop())

    def ask(
        self, message: Message, answer: type[M], version: int, *, principal: Principal | None = None
    ) -> M:
        """Send one request and read its answer, both as bytes. The connection is that of `self.principal`."""
        return self.loop.run_until_complete(self.exchange(message, answer, version, principal=principal))

    def ask_together(self, requests: Sequence[Message], answer: type[M], version: int) -> list[M]:
        """The same for several connections at once."""

        async def all_of_them() -> list[M]:
            return await asyncio.gather(*(self.exchange(one, answer, version) for one in requests))

        return self.loop.run_until_complete(all_of_them())

    def answers_at_once(self, message: Message, version: int) -> bool:
        """Whether dispatch itself answers, with no task for it."""

        async def dispatch() -> bool:
            request = self._dispatcher.dispatch(FakeConnection(), _frame(message, version, 0))
            return request is not None and request.response is not None

        return self.loop.run_until_complete(dispatch())

    async def exchange(
        self,
        message: Message,
        answer: type[M],
        version: int,
        *,
        principal: Principal | None = None,
        session: ClientSession | None = None,
    ) -> M:
        connection = FakeConnection(principal or self.principal, session)
        correlation_id = next(self._correlation_ids)
        request = self._dispatcher.dispatch(connection, _frame(message, version, correlation_id))
        if request is None or request.response is None:
            request = await connection.answer
        self.throttled_s = connection.throttled_s
        assert request.response is not None
        data = b"".join(bytes(buffer) for buffer in request.response if isinstance(buffer, bytes | bytearray))
        assert struct.unpack_from(">ii", data) == (len(data) - 4, correlation_id)
        assert answer is messages.response_of(message.api_key)
        decoded, end = decode(answer, data, version, 8 + response_is_flexible(message.api_key, version))
        assert end == len(data)
        return decoded

    def create(self, name: str, count: int = 1, **configs: str) -> None:
        """A topic; `retention_ms="1"` sets `retention.ms`."""
        named = {name.replace("_", "."): value for name, value in configs.items()}
        self.loop.run_until_complete(
            self.services.topics.create(NewTopic(name, count, 1, {}, dict[str, str | None](named)))
        )

    def partition(self, topic: str, index: int = 0) -> Partition:
        partition = self.services.partitions.get(topic, index)
        assert partition is not None
        return partition

    def append(
        self,
        topic: str,
        *timestamps: int,
        producer_id: int = -1,
        transactional: bool = False,
        visible: bool = True,
    ) -> None:
        """One batch with a record for each timestamp, to partition 0; the high watermark follows if `visible`."""
        partition = self.partition(topic)
        of_producer = producer_id >= 0
        batch = memoryview(
            bytearray(
                build_batch(
                    [(None, b"value", timestamp, ()) for timestamp in timestamps],
                    producer_id=producer_id,
                    producer_epoch=0 if of_producer else -1,
                    base_sequence=0 if of_producer else -1,
                    is_transactional=transactional,
                )
            )
        )
        now_ms = self.loop.clock.now_ms()
        header = partition.check(batch, now_ms)
        if visible:
            partition.append(batch, header, now_ms)
        else:
            partition.log.append(batch, header, leader_epoch=0, now_ms=now_ms)
        self.loop.run_until_idle()

    def topic_id(self, name: str) -> bytes:
        return self.services.metadata.image.topics[name].id


def _frame(message: Message, version: int, correlation_id: int) -> memoryview:
    header = struct.pack(">hhih4s", message.api_key, version, correlation_id, 4, b"test")
    tags = b"\0" if version >= message.flexible else b""
    # Writable, as what a connection has received is: batches get their offsets in place.
    return memoryview(bytearray(header + tags + encode(message, version)))
