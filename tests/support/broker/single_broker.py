"""A whole single broker without sockets, in virtual time on a simulated disk: frames in, frames out."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Mapping, Sequence
from typing import TypeVar

from flintmq.app.assembly import assemble
from flintmq.broker.request import ClientSession, Request, ResponseBuffers
from flintmq.coordinator.transactions.marker_sender import MARKERS_PER_TURN
from flintmq.effects import Effects
from flintmq.metadata import keys
from flintmq.metadata.local_store import LocalMetadataStore
from flintmq.metadata.store import Put
from flintmq.metadata.topics import NewTopic
from flintmq.partitions.maintenance.scheduler import TaskLimits
from flintmq.partitions.partition import Partition
from flintmq.protocol import messages
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.header import response_is_flexible
from flintmq.records.record import build_batch
from flintmq.security.principal import ANONYMOUS, Principal
from flintmq.settings import load
from flintmq.testing.simulation import (
    SimulatedDisk,
    SimulatedExecutor,
    SimulatedLoop,
    SimulatedRandom,
    SimulatedSubprocess,
)

NODE_ID = 3
CLUSTER_ID = "a-cluster-of-one-broker"
SEED = 11
_SETTINGS = {
    "node.id": str(NODE_ID),
    "broker.rack": "r1",
    "max.incremental.fetch.session.cache.slots": "16",
}

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
        executor = SimulatedExecutor(self.loop, SEED)
        effects = Effects(
            clock=self.loop.clock,
            timers=self.loop,
            random=SimulatedRandom(SEED),
            disk=self.disk,
            executor=executor,
            subprocess=SimulatedSubprocess(self.disk, executor),
        )

        async def open_store() -> LocalMetadataStore:
            store = await LocalMetadataStore.open(
                f"{self.path}/metadata",
                disk=self.disk,
                clock=self.loop.clock,
                timers=self.loop,
                executor=executor,
            )
            await store.txn({}, {keys.CLUSTER: Put(keys.encode(keys.ClusterValue(id=CLUSTER_ID)))})
            return store

        self.core = core = await assemble(
            load(command_line=list({**_SETTINGS, **self._settings}.items())),
            effects,
            open_store,
            data_dir=self.path,
            descriptors=64,
            task_limits=self._task_limits,
            markers_per_turn=self._markers_per_turn,
        )
        await core.start()
        self.services = core.services
        self.groups, self.transactions = core.groups, core.transactions
        self.authorization, self.limited_clients = core.authorization, core.quotas.clients
        self._dispatcher = core.dispatcher

    def close(self) -> None:
        self.loop.run_until_complete(self.core.stop())

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
