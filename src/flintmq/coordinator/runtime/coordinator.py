"""All shards of one internal topic: which of them a name belongs to, and which calls wait for their responses.

The topic is created when it is first needed. A shard exists where its partition is led, in one leader epoch: it is
loaded when this broker becomes the leader, and thrown away in the step of the loop in which the leadership ends.
Calls that wait then fail with NOT_COORDINATOR, so that their clients look for the coordinator again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from flintmq.coordinator.runtime.machine import NOBODY, CoordinatorMachine, Decision, Token
from flintmq.coordinator.runtime.shard import CoordinatorShard
from flintmq.effects import Clock, Executor, Timers
from flintmq.errors import ErrorCode, RequestError, error_code_of
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.topics import NewTopic, Topics
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.partition import NO_LEADER, Partition, Role
from flintmq.protocol.codegen.structures import Message

logger: Final = logging.getLogger(__name__)

M = TypeVar("M", bound=CoordinatorMachine)
T = TypeVar("T")


class PendingCall(NamedTuple):
    """A call that waits for what a machine decides."""

    respond: Callable[[Message], object]
    fail: Callable[[ErrorCode], object]
    partition: int
    """Of the internal topic: the shard that decides."""


class Coordinator(Generic[M]):
    def __init__(
        self,
        topic: str,
        make_machine: Callable[[Partition], M],
        new_topic: Callable[[], NewTopic],
        *,
        metadata: ClusterMetadata,
        topics: Topics,
        partitions: LocalPartitions,
        clock: Clock,
        timers: Timers,
        executor: Executor,
        settled: Callable[[CoordinatorShard[M], Decision], object] | None = None,
    ) -> None:
        self.topic = topic
        self._make_machine = make_machine
        self._new_topic = new_topic
        self._metadata = metadata
        self._topics = topics
        self._partitions = partitions
        self._clock = clock
        self._timers = timers
        self._executor = executor
        self._settled = settled
        self._shards: dict[int, CoordinatorShard[M]] = {}
        self._loads: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending: dict[Token, PendingCall] = {}
        self._last_token = NOBODY
        self._making: asyncio.Future[None] | None = None

    # ---- life

    def start(self) -> None:
        """ORDER: after the partitions are loaded."""
        self._partitions.on_role(self._role_changed)
        topic = self._metadata.image.topics.get(self.topic)
        for index in range(len(topic.partitions) if topic is not None else 0):
            partition = self._partitions.get(self.topic, index)
            if partition is not None:
                self._role_changed(partition)

    def close(self) -> None:
        for task in (*self._loads, *self._tasks):
            task.cancel()
        for shard in self._shards.values():
            shard.close()

    def _role_changed(self, partition: Partition) -> None:
        if partition.topic != self.topic:
            return
        index = partition.index
        shard = self._shards.get(index)
        leads = partition.role is Role.LEADER
        if shard is not None and (
            not leads or shard.partition is not partition or shard.leader_epoch != partition.leader_epoch
        ):
            del self._shards[index]
            shard.close()
            self._fail_calls(index)
        if leads and index not in self._shards:
            self._shards[index] = self._load(partition)

    def _load(self, partition: Partition) -> CoordinatorShard[M]:
        shard = CoordinatorShard(
            partition,
            self._make_machine(partition),
            clock=self._clock,
            timers=self._timers,
            executor=self._executor,
            respond=self._respond,
            fail=self._fail,
            settled=self._settled,
        )
        load = asyncio.ensure_future(shard.load())
        self._loads.add(load)
        load.add_done_callback(self._loads.discard)
        return shard

    def _fail_calls(self, index: int) -> None:
        """Fail the calls that wait in a machine that is no longer there."""
        for token in [token for token, call in self._pending.items() if call.partition == index]:
            self._fail(token, ErrorCode.NOT_COORDINATOR)

    async def loaded(self) -> None:
        """Wait for the shards that are being loaded now."""
        await asyncio.gather(*self._loads)

    async def make_topic(self) -> None:
        """Make the internal topic, unless it is there. Those who come at the same time wait for the same one."""
        if self.topic in self._metadata.image.topics:
            return
        if self._making is None:
            self._making = asyncio.ensure_future(self._make_topic())
        await asyncio.shield(self._making)

    def with_topic(self, call: Callable[[], object], fail: Callable[[ErrorCode], object]) -> None:
        """Call `call` once the internal topic is there: at once, or after it is made. `fail` if it cannot be."""
        if self.topic in self._metadata.image.topics:
            call()
        else:
            self._call_after(self.make_topic(), lambda _: call(), fail)

    def _call_after(
        self, work: Awaitable[T], call: Callable[[T], object], fail: Callable[[ErrorCode], object]
    ) -> None:
        """Call `call` with the result of work that seldom has to be awaited, in a task that ends with the broker."""

        async def run() -> None:
            try:
                call(await work)
            except Exception as error:
                code = error_code_of(error)
                if code is ErrorCode.UNKNOWN_SERVER_ERROR:
                    logger.exception("a call to the coordinator of %s failed", self.topic)
                fail(code)

        task = asyncio.ensure_future(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _make_topic(self) -> None:
        try:
            await self._topics.create(self._new_topic())
        except RequestError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        finally:
            self._making = None

    # ---- calls

    def call(
        self,
        name: str,
        decide: Callable[[M, Token], Decision],
        *,
        respond: Callable[[Message], object],
        fail: Callable[[ErrorCode], object],
    ) -> Token:
        """Let the machine that `name` belongs to decide. One of `respond` and `fail` is called once, now or later."""
        self._last_token += 1
        token = self._last_token
        topic = self._metadata.image.topics.get(self.topic)
        if topic is None:
            fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return token
        index = shard_index(name, len(topic.partitions))
        shard = self._shards.get(index)
        if shard is None:
            fail(ErrorCode.NOT_COORDINATOR)
        else:
            self._pending[token] = PendingCall(respond, fail, index)
            shard.call(token, lambda machine: decide(machine, token))
        return token

    def each(self, decide: Callable[[M], Sequence[Decision]]) -> None:
        """Let every machine that is loaded decide something that no call waits for."""
        for shard in self._shards.values():
            shard.carry_out(decide)

    def forget(self, token: Token) -> None:
        """Call nobody back for this call."""
        self._pending.pop(token, None)

    def coordinator_of(self, name: str) -> int:
        """Return the broker that coordinates `name`; NO_LEADER if there is none now, or no internal topic yet."""
        topic = self._metadata.image.topics.get(self.topic)
        if topic is None:
            return NO_LEADER
        return topic.partitions[shard_index(name, len(topic.partitions))].leader

    def shard_of(self, name: str) -> CoordinatorShard[M] | None:
        """Return the shard that `name` belongs to; None if it is not here."""
        if not self._shards:
            return None
        return (
            None if self.topic not in self._metadata.image.topics else self._shards.get(self.index_of(name))
        )

    def index_of(self, name: str) -> int:
        """The partition of the internal topic that a name belongs to. RequestError while there is no such topic."""
        topic = self._metadata.image.topics.get(self.topic)
        if topic is None:
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return shard_index(name, len(topic.partitions))

    def shard_at(self, index: int) -> CoordinatorShard[M] | None:
        return self._shards.get(index)

    def __iter__(self) -> Iterator[CoordinatorShard[M]]:
        return iter(list(self._shards.values()))

    def _respond(self, token: Token, message: Message) -> None:
        pending = self._pending.pop(token, None)
        if pending is not None:
            pending.respond(message)

    def _fail(self, token: Token, code: ErrorCode) -> None:
        pending = self._pending.pop(token, None)
        if pending is not None:
            pending.fail(code)


def shard_index(name: str, count: int) -> int:
    """Kafka's: the hash that Java has for strings, over UTF-16."""
    value = 0
    for unit in memoryview(name.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    if value >= 1 << 31:
        value = (1 << 32) - value
    return 0 if value == 1 << 31 else value % count
