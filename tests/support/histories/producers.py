"""Producers that tell a history what they send: idempotent ones, and transactional ones with their zombies."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from support.histories.clients import STEP_S, Client, Scene, error_in
from support.histories.history import End, GaveUp, Outcome, Place, Send

_TRANSACTION_TIMEOUT_MS = 20_000
_HUNG_S = 4.0
# What has gathered while the broker was away must fit the segments, which are small here.
_BATCH_BYTES = 16_384


class Sender:
    """One instance of a producer, as one process of the history."""

    def __init__(self, client: Client, process: str, **settings: Any) -> None:
        self.process = process
        self.fatal: KafkaError | None = None
        self.has_dropped = False
        """Whether the client gave up records that the broker may have."""
        self.producer = Producer(
            client.scene.settings(enable_idempotence=True, linger_ms=2, batch_size=_BATCH_BYTES, **settings)
        )
        self._client = client
        self._recorder = client.recorder

    def send(self, place: Place, *, transaction: str | None = None, source: int | None = None) -> None:
        value = next(self._client.scene.values)
        send = self._recorder.begin(
            Send(process=self.process, place=place, value=value, transaction=transaction, source=source)
        )

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                send.offset = message.offset()
                self._recorder.end(send)
            else:
                send.error = error.name()
                self.has_dropped = True

        try:
            self.producer.produce(
                place[0], self._client.payload(value), partition=place[1], on_delivery=delivered
            )
        except (BufferError, KafkaException):
            # It never left the client.
            self._recorder.end(send, Outcome.FAIL)

    def flush(self, timeout_s: float) -> None:
        """Serve delivery reports until all are there, or for so long; 0 serves those that are."""
        try:
            self.producer.flush(timeout_s)
        except (KafkaException, SystemError) as error:
            self.fatal = error_in(error)


class IdempotentProducer(Client):
    def work(self) -> None:
        places = self.scene.topics.plain + self.scene.topics.mixed
        instances = itertools.count(1)
        sender = self._open(next(instances))
        while not self.scene.stopping.wait(self.random.uniform(0.0, 0.06)):
            for _ in range(self.random.randint(1, 5)):
                sender.send(self.random.choice(places))
            sender.flush(0)
            if sender.fatal is not None:
                self._give_up(sender)
                sender = self._open(next(instances))
        sender.flush(self.scene.patience_s)
        if sender.fatal is not None or len(sender.producer):
            self._give_up(sender)

    def _give_up(self, sender: Sender) -> None:
        why = "undelivered" if sender.fatal is None else sender.fatal.name()
        self.recorder.note(GaveUp(process=sender.process, why=why))
        sender.producer.purge()

    def _open(self, instance: int) -> Sender:
        return Sender(self, f"{self.name}#{instance}", message_timeout_ms=120_000)


class Ended(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    SPENT = "spent"
    """Aborted, and the producer should not be used again."""
    GONE = "gone"
    """Nobody knows; the producer is of no use any more."""


class TransactionalSender(Sender):
    """An instance under a transactional id. Whoever had the id before is fenced, its transaction ended."""

    def __init__(self, client: Client, transactional_id: str, instance: int) -> None:
        super().__init__(
            client,
            f"{transactional_id}#{instance}",
            transactional_id=transactional_id,
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
        )
        self._count = 0
        self.transaction = ""

    def open(self) -> bool:
        return self._try(self.producer.init_transactions) is None

    def begin(self) -> bool:
        self._count += 1
        self.transaction = f"{self.process}.{self._count}"
        try:
            self.producer.begin_transaction()
        except KafkaException:
            return False
        return True

    def send_in_transaction(self, place: Place, *, source: int | None = None) -> None:
        self.send(place, transaction=self.transaction, source=source)

    def commit(
        self, group: str = "", offsets: Mapping[Place, int] | None = None, metadata: Any = None
    ) -> Ended:
        if offsets:
            error = self._send_offsets(offsets, metadata)
            if error is not None:
                return self.abort() if error.txn_requires_abort() else self._gone(error)
        end = self._recorder.begin(
            End(
                process=self.process,
                transaction=self.transaction,
                commits=True,
                group=group,
                offsets=dict(offsets or {}),
            )
        )
        error = self._try(self.producer.commit_transaction)
        if error is None:
            self._recorder.end(end)
            return Ended.COMMITTED
        if error.txn_requires_abort():
            self._recorder.end(end, Outcome.FAIL)
            return self.abort()
        return self._gone(error)

    def abort(self, offsets: Mapping[Place, int] | None = None, metadata: Any = None) -> Ended:
        """With offsets, these are sent first, and must not count."""
        if offsets:
            error = self._send_offsets(offsets, metadata)
            if error is not None and not error.txn_requires_abort():
                return self._gone(error)
        end = self._recorder.begin(End(process=self.process, transaction=self.transaction, commits=False))
        error = self._try(self.producer.abort_transaction)
        if error is not None:
            return self._gone(error)
        self._recorder.end(end)
        self.flush(0)
        # librdkafka gives the sequence numbers of what it dropped to the next transaction, under the same epoch: were
        # the broker to have those records, it would take the next ones for a repeat of them. Apache Kafka does too.
        return Ended.SPENT if self.has_dropped else Ended.ABORTED

    def commit_as_a_zombie(self, place: Place) -> None:
        """Another has the id by now: whatever comes of this, it must not be committed."""
        self.send_in_transaction(place)
        end = self._recorder.begin(End(process=self.process, transaction=self.transaction, commits=True))
        try:
            self.producer.commit_transaction(STEP_S)
        except (KafkaException, SystemError):
            self._recorder.end(end, Outcome.FAIL)
        else:
            self._recorder.end(end)

    def _send_offsets(self, offsets: Mapping[Place, int], metadata: Any) -> KafkaError | None:
        """In a thread of its own: the call may last far beyond its time-out (librdkafka issues 5456 and 5511)."""
        positions = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        result: queue.SimpleQueue[KafkaError | None] = queue.SimpleQueue()

        def send() -> None:
            result.put(
                self._try(
                    lambda left_s: self.producer.send_offsets_to_transaction(positions, metadata, left_s)
                )
            )

        threading.Thread(target=send, name=f"{self.process}.offsets", daemon=True).start()
        try:
            return result.get(timeout=_HUNG_S)
        except queue.Empty:
            return KafkaError(KafkaError._TIMED_OUT)

    def _try(self, call: Callable[[float], object]) -> KafkaError | None:
        """Again as long as librdkafka says that this may help."""
        deadline = time.monotonic() + self._client.scene.patience_s
        while True:
            try:
                call(STEP_S)
                return None
            except (KafkaException, SystemError) as exception:
                error = error_in(exception)
                if not error.retriable() or time.monotonic() > deadline:
                    return error

    def _gone(self, error: KafkaError) -> Ended:
        self._recorder.note(GaveUp(process=self.process, why=error.name()))
        return Ended.GONE


class Transactor(Client):
    """A client with a transactional id, which it takes again whenever an instance of it is of no use any more."""

    def __init__(self, scene: Scene, name: str, seed: int) -> None:
        super().__init__(scene, name, seed)
        self._instances = 0

    def open(self) -> TransactionalSender:
        for _ in range(5):
            self._instances += 1
            sender = TransactionalSender(self, self.name, self._instances)
            if sender.open():
                return sender
        raise AssertionError(f"{self.name} cannot be opened")

    def settle(self) -> None:
        """Whatever an instance has left behind is ended by the next."""
        self._guarded(self.open)


class TransactionalProducer(Transactor):
    def work(self) -> None:
        sender = self.open()
        places = self.scene.topics.plain + self.scene.topics.mixed
        while not self.scene.stopping.wait(self.random.uniform(0.0, 0.1)):
            if not sender.begin():
                sender = self.open()
                continue
            for _ in range(self.random.randint(1, 8)):
                sender.send_in_transaction(self.random.choice(places))
            choice = self.random.random()
            if choice < 0.04:
                sender = self._leave_a_zombie(sender)
                continue
            if choice < 0.5:
                # Give readers a chance to see what they must not.
                sender.flush(STEP_S)
                self.scene.stopping.wait(self.random.uniform(0.0, 0.1))
            ended = sender.commit() if self.random.random() < 0.7 else sender.abort()
            if ended in (Ended.GONE, Ended.SPENT):
                sender = self.open()
        sender.flush(self.scene.patience_s)

    def _leave_a_zombie(self, zombie: TransactionalSender) -> TransactionalSender:
        zombie.flush(STEP_S)
        successor = self.open()
        zombie.commit_as_a_zombie(self.scene.topics.mixed[0])
        return successor
