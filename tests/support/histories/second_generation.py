"""A transactional producer of the second generation (KIP-890), on the bare wire: librdkafka is of the first.

Its first batch for a partition adds that to the transaction, and the answer to each end has the epoch of the next.
It repeats what had no answer, as Kafka's own does, and now and then what had one: an end that comes late must not
touch the transaction that is open by then.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TypeVar

from flintmq.errors import ErrorCode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from flintmq.records.record import build_batch
from support.histories.clients import STEP_S, Client, Scene
from support.histories.history import End, GaveUp, Outcome, Place, Send
from support.wire.wire import Wire

_INIT_VERSION, _PRODUCE_VERSION, _END_VERSION = 5, 12, 5
_TIMEOUT_MS = 20_000
_PAUSE_S = 0.05
_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
)

M = TypeVar("M", bound=Message)


class Refused(Exception):
    """The broker says no, or nothing at all for a long time."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class SecondGenerationProducer(Client):
    def __init__(self, scene: Scene, name: str, seed: int) -> None:
        super().__init__(scene, name, seed)
        self._wire: Wire | None = None
        self._producer = (-1, -1)
        self._sequences: Counter[Place] = Counter()
        self._transactions = 0
        self._instances = 0

    def work(self) -> None:
        try:
            self.open()
            while not self.scene.stopping.wait(self.random.uniform(0.0, 0.1)):
                try:
                    self._transact()
                except Refused as refused:
                    self.recorder.note(GaveUp(process=self._process, why=refused.code.name))
                    self.open()
        finally:
            self._hang_up()

    @property
    def _process(self) -> str:
        return f"{self.name}#{self._instances}"

    def open(self) -> None:
        """Take the transactional id; a transaction that is open under it is aborted."""
        self._instances += 1
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=_TIMEOUT_MS)
        answer = self._ask(request, _INIT_VERSION, InitProducerIdResponse)
        self._go_on_as(answer.producer_id, answer.producer_epoch)

    def settle(self) -> None:
        """Whatever was left behind is ended."""
        self._guarded(self.open)
        self._hang_up()

    # ---- one transaction

    def _transact(self) -> None:
        self._transactions += 1
        transaction = f"{self.name}.{self._transactions}"
        places = self.scene.topics.plain + self.scene.topics.mixed
        before = self._producer[0], self._producer[1] - 1
        for place in self.random.sample(places, self.random.randint(1, 3)):
            self._send(transaction, place)
            if self.random.random() < 0.1:
                self._end_late(before)
        if self.random.random() < 0.05:
            self._end_as_a_zombie(transaction)
            return
        self._end(transaction, commits=self.random.random() < 0.7)

    def _send(self, transaction: str, place: Place) -> None:
        sends = [
            self.recorder.begin(
                Send(
                    process=self._process,
                    place=place,
                    value=next(self.scene.values),
                    transaction=transaction,
                )
            )
            for _ in range(self.random.randint(1, 4))
        ]
        now_ms = time.time_ns() // 1_000_000
        batch = build_batch(
            [(None, self.payload(send.value), now_ms, ()) for send in sends],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=self._sequences[place],
            is_transactional=True,
        )
        topic, index = place
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=topic,
                    partition_data=[ProduceRequest.PartitionProduceData(index=index, records=batch)],
                )
            ],
        )
        answer = self._ask(request, _PRODUCE_VERSION, ProduceResponse)
        self._sequences[place] += len(sends)
        for at, send in enumerate(sends):
            send.offset = answer.responses[0].partition_responses[0].base_offset + at
            self.recorder.end(send)

    def _end(self, transaction: str, *, commits: bool) -> None:
        end = self.recorder.begin(End(process=self._process, transaction=transaction, commits=commits))
        answer = self._ask(self._end_request(self._producer, commits=commits), _END_VERSION, EndTxnResponse)
        self.recorder.end(end)
        self._go_on_as(answer.producer_id, answer.producer_epoch)

    def _end_late(self, producer: tuple[int, int]) -> None:
        """An end of the transaction before, which has ended: whatever is answered, nothing may come of it."""
        try:
            request = self._end_request(producer, commits=self.random.random() < 0.5)
            self._ask(request, _END_VERSION, EndTxnResponse)
        except Refused:
            return

    def _end_as_a_zombie(self, transaction: str) -> None:
        """Another has taken the id: the transaction was aborted, and cannot be committed."""
        zombie = self._producer
        self.open()
        end = self.recorder.begin(End(process="zombie", transaction=transaction, commits=True))
        try:
            self._ask(self._end_request(zombie, commits=True), _END_VERSION, EndTxnResponse)
        except Refused:
            self.recorder.end(end, Outcome.FAIL)
        else:
            self.recorder.end(end)

    def _end_request(self, producer: tuple[int, int], *, commits: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.name, producer_id=producer[0], producer_epoch=producer[1], committed=commits
        )

    def _go_on_as(self, producer_id: int, epoch: int) -> None:
        self._producer = producer_id, epoch
        self._sequences.clear()

    # ---- the wire

    def _ask(self, request: Message, version: int, kind: type[M]) -> M:
        """Until there is an answer that is one."""
        deadline = time.monotonic() + self.scene.patience_s
        while True:
            code = ErrorCode.NETWORK_EXCEPTION
            try:
                if self._wire is None:
                    self._wire = Wire(self.scene.address, timeout_s=STEP_S)
                answer = self._wire.ask(request, version)
            except (OSError, EOFError):
                self._hang_up()
            else:
                assert isinstance(answer, kind)
                code = _code_of(answer)
                if code is ErrorCode.NONE:
                    return answer
                if code not in _AGAIN:
                    raise Refused(code)
            if time.monotonic() > deadline:
                raise Refused(code)
            # A broker that is down or busy is not asked in a tight loop.
            threading.Event().wait(_PAUSE_S)

    def _hang_up(self) -> None:
        if self._wire is not None:
            self._wire.sock.close()
            self._wire = None


def _code_of(answer: Message) -> ErrorCode:
    if isinstance(answer, ProduceResponse):
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)
    assert isinstance(answer, InitProducerIdResponse | EndTxnResponse)
    return ErrorCode(answer.error_code)
