"""Consumers that tell a history what they read: by assignment, in groups, and those who write what they have read."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from support.histories.clients import STEP_S, Client, Scene, value_in
from support.histories.history import (
    UNKNOWN,
    Assign,
    CommitOffsets,
    FinalOffsets,
    FinalRead,
    Outcome,
    Place,
    Poll,
    Record,
)
from support.histories.producers import Ended, TransactionalSender, Transactor

_BATCH_MAX = 20
_WAIT_S = 0.1


def consumer_of(scene: Scene, *, group: str, committed_only: bool, **more: Any) -> Consumer:
    return Consumer(
        scene.settings(
            group_id=group,
            isolation_level="read_committed" if committed_only else "read_uncommitted",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_wait_max_ms=100,
            fetch_error_backoff_ms=20,
            **more,
        )
    )


class Reader(Client):
    """Reads every place from the beginning, and now and then some of it again."""

    def __init__(self, scene: Scene, name: str, seed: int, *, committed_only: bool) -> None:
        super().__init__(scene, name, seed)
        self._committed_only = committed_only
        self._positions = dict.fromkeys(scene.topics.all, 0)

    def work(self) -> None:
        consumer = consumer_of(self.scene, group=self.name, committed_only=self._committed_only)
        try:
            self._assign(consumer, self._positions)
            while not self.scene.stopping.is_set():
                started = self.recorder.now()
                records = self._read(consumer)
                if records:
                    self.recorder.note(Poll(process=self.name, records=records), since=started)
                if self.random.random() < 0.005:
                    again = {
                        place: self.random.randint(max(0, at - 500), at)
                        for place, at in self._positions.items()
                    }
                    self._assign(consumer, again)
        finally:
            consumer.close()

    def _assign(self, consumer: Consumer, positions: dict[Place, int]) -> None:
        consumer.assign([TopicPartition(*place, offset) for place, offset in positions.items()])
        self.recorder.note(
            Assign(process=self.name, positions=dict(positions), committed_only=self._committed_only)
        )
        self._positions = positions

    def _read(self, consumer: Consumer) -> list[Record]:
        records: list[Record] = []
        message = consumer.poll(_WAIT_S)
        while message is not None:
            if message.error() is None:
                record = record_of(message)
                records.append(record)
                self._positions[record.place] = record.offset + 1
            message = consumer.poll(0) if len(records) < _BATCH_MAX else None
        return records


class Member:
    """A consumer in a group. What it has gathered is dropped when its partitions change hands."""

    def __init__(self, client: Client, group: str, topics: set[str], *, committed_only: bool) -> None:
        self.consumer = consumer_of(
            client.scene,
            group=group,
            committed_only=committed_only,
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
        )
        self._process = client.name
        self._patience_s = client.scene.patience_s
        self._recorder = client.recorder
        self._group = group
        self._committed_only = committed_only
        self._gathered: list[Record] = []
        self._since = 0
        self.consumer.subscribe(
            sorted(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def gather(self) -> list[Record]:
        """Some records of partitions that it had all the time."""
        self._since = self._recorder.now()
        message = self.consumer.poll(_WAIT_S)
        while message is not None:
            if message.error() is None:
                self._gathered.append(record_of(message))
            message = self.consumer.poll(0) if len(self._gathered) < _BATCH_MAX else None
        return self._noted()

    def _noted(self) -> list[Record]:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._recorder.note(Poll(process=self._process, records=gathered), since=self._since)
        return gathered

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._noted()
        self._note_positions({(one.topic, one.partition): UNKNOWN for one in partitions})

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._noted()

    def _note_positions(self, positions: dict[Place, int]) -> None:
        self._recorder.note(
            Assign(
                process=self._process,
                positions=positions,
                committed_only=self._committed_only,
                group=self._group,
            )
        )

    def rewind(self) -> bool:
        """Back to what the group has committed; False if this consumer cannot."""
        try:
            committed = self.consumer.committed(self.consumer.assignment(), self._patience_s)
            positions = {
                (one.topic, one.partition): 0 if one.offset == OFFSET_INVALID else one.offset
                for one in committed
            }
            if any(one.error for one in committed):
                return False
            for place, offset in positions.items():
                self.consumer.seek(TopicPartition(*place, offset))
        except KafkaException:
            return False
        self._note_positions(positions)
        return True

    def close(self) -> None:
        """Hand the partitions over, then close.

        Where `close` itself finds partitions to revoke, librdkafka may wait for ever for its own thread, and its
        binding keeps the interpreter's lock meanwhile: not even the test's time limit ends that.
        """
        self.consumer.unsubscribe()
        deadline = time.monotonic() + self._patience_s
        while self.consumer.assignment() and time.monotonic() < deadline:
            self.consumer.poll(_WAIT_S)
        self.consumer.close()
        self._noted()


class GroupMember(Client):
    """Reads as one of a group, commits what it has read, and leaves and comes again."""

    def __init__(self, scene: Scene, name: str, seed: int, *, group: str) -> None:
        super().__init__(scene, name, seed)
        self._group = group

    def work(self) -> None:
        while not self.scene.stopping.is_set():
            topics = {topic for topic, _ in self.scene.topics.mixed + self.scene.topics.plain}
            member = Member(self, self._group, topics, committed_only=True)
            try:
                while not self.scene.stopping.is_set() and self.random.random() > 0.005:
                    records = member.gather()
                    if records and self.random.random() < 0.5:
                        self._commit(member, records)
            finally:
                member.close()

    def _commit(self, member: Member, records: list[Record]) -> None:
        offsets = ends_of(records)
        commit = self.recorder.begin(CommitOffsets(process=self.name, group=self._group, offsets=offsets))
        try:
            answers = member.consumer.commit(
                offsets=[TopicPartition(*place, offset) for place, offset in offsets.items()],
                asynchronous=False,
            )
        except KafkaException:
            return
        if not any(answer.error for answer in answers):
            self.recorder.end(commit, Outcome.OK)


class Copier(Transactor):
    """Reads the plain topics in a group, and writes what it makes of them, with its offsets, in transactions."""

    def __init__(self, scene: Scene, name: str, seed: int, *, group: str) -> None:
        super().__init__(scene, name, seed)
        self._group = group

    def work(self) -> None:
        sender = self.open()
        member = self._join()
        try:
            while not self.scene.stopping.is_set():
                records = member.gather()
                if not records:
                    continue
                ended = self._copy(sender, member, records)
                if ended in (Ended.GONE, Ended.SPENT):
                    sender = self.open()
                if (ended is not Ended.COMMITTED and not member.rewind()) or self.random.random() < 0.005:
                    member.close()
                    member = self._join()
            sender.flush(self.scene.patience_s)
        finally:
            member.close()

    def _join(self) -> Member:
        return Member(self, self._group, {topic for topic, _ in self.scene.topics.plain}, committed_only=True)

    def _copy(self, sender: TransactionalSender, member: Member, records: list[Record]) -> Ended:
        if not sender.begin():
            return Ended.GONE
        for record in records:
            sender.send_in_transaction(self.random.choice(self.scene.topics.copies), source=record.value)
        offsets, metadata = ends_of(records), member.consumer.consumer_group_metadata()
        if self.random.random() < 0.8:
            ended = sender.commit(self._group, offsets, metadata)
        else:
            ended = sender.abort(offsets if self.random.random() < 0.5 else None, metadata)
        return ended


# -- the end of a history


def read_to_the_end(scene: Scene, *, committed_only: bool) -> None:
    name = f"{scene.name}.final"
    consumer = consumer_of(scene, group=name, committed_only=committed_only, enable_partition_eof=True)
    ends: dict[Place, int] = {}
    records: list[Record] = []
    deadline = time.monotonic() + scene.patience_s
    try:
        consumer.assign([TopicPartition(*place, 0) for place in scene.topics.all])
        while len(ends) < len(scene.topics.all):
            message = consumer.poll(STEP_S)
            assert time.monotonic() < deadline, f"the final read got to {ends} of {scene.topics.all}"
            if message is None:
                continue
            error = message.error()
            if error is None:
                records.append(record_of(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[message.topic(), message.partition()] = message.offset()
    finally:
        consumer.close()
    scene.recorder.note(FinalRead(process=name, committed_only=committed_only, ends=ends, records=records))


def note_offsets(scene: Scene, group: str, places: tuple[Place, ...]) -> None:
    consumer = consumer_of(scene, group=group, committed_only=True)
    try:
        committed = consumer.committed([TopicPartition(*place) for place in places], scene.patience_s)
    finally:
        consumer.close()
    offsets = {
        (one.topic, one.partition): UNKNOWN if one.offset == OFFSET_INVALID else one.offset
        for one in committed
    }
    scene.recorder.note(FinalOffsets(process=f"{scene.name}.final", group=group, offsets=offsets))


def ends_of(records: list[Record]) -> dict[Place, int]:
    return {record.place: record.offset + 1 for record in records}


def record_of(message: Any) -> Record:
    return Record((message.topic(), message.partition()), message.offset(), value_in(message.value()))
