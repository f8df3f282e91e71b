"""A real broker killed with SIGKILL at random moments of compaction and retention (R1–R3, Z7).

A client writes to a topic that is compacted and to one whose oldest records are deleted, another one asks for both to
be done all the time. After each kill the broker is started again in its folder, and what it holds is compared with
what it had acknowledged: nothing is lost, and nothing that was replaced or deleted comes back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.maintenance import MaintenanceAction
from flintmq.protocol.messages import (
    DescribeTopicTaskRequest,
    DescribeTopicTaskResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MaintainTopicRequest,
    MaintainTopicResponse,
)
from flintmq.records.batch import HEADER_SIZE, read_header
from flintmq.records.record import Record, build_batch, records_of
from support.broker.broker_process import BrokerProcess
from support.wire.wire import TIMESTAMP, UNPACKED_MAX, Wire, fetch_request

KEYS = 150
STATE, EVENTS = "state", "events"
PRODUCER_ID = 4711
EARLIEST = -2
PAUSE_S = 0.005
"""Between two batches: a life should not be spent with one long compaction."""
FAST = (
    "flint.rest.port=-1",
    "log.cleaner.backoff.ms=0",
    "log.retention.check.interval.ms=1",
    "auto.create.topics.enable=false",
)

Told = tuple[bytes | None, bytes | None, int]


@dataclass
class Topic:
    """What is known of one topic from outside."""

    name: str
    acknowledged: dict[int, Told] = field(default_factory=dict)
    """Key, value and time by offset."""
    unanswered: list[Told] = field(default_factory=list)
    """The batch that was on its way when the broker died."""
    start: int = 0
    """Where a finished retention has let the log begin."""
    sequence: int = 0
    last_batch: tuple[bytes, int] | None = None
    """Of the idempotent producer, and its offset."""


class Clients:
    def __init__(self, address: str, random: Random, topics: tuple[Topic, Topic]) -> None:
        self._address = address
        self._random = random
        self._topics = topics
        self.compactions = 0
        self.passed = threading.Event()
        """Set when the first compaction of this life has been seen through."""
        self._killed = threading.Event()
        self._threads = [
            threading.Thread(target=self._until_the_end, args=(work,))
            for work in (self._write, self._maintain)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        self._killed.set()
        for thread in self._threads:
            thread.join()

    def _until_the_end(self, work: Callable[[Wire], None]) -> None:
        try:
            with Wire(self._address) as wire:
                while not self._killed.wait(PAUSE_S):
                    work(wire)
        except (OSError, EOFError):
            self.passed.set()

    def _write(self, wire: Wire) -> None:
        for topic in self._topics:
            count = self._random.randint(1, 20)
            told = [self._record(topic, number) for number in range(count)]
            batch = build_batch(
                [(key, value, time, ()) for key, value, time in told],
                producer_id=PRODUCER_ID,
                producer_epoch=0,
                base_sequence=topic.sequence,
            )
            topic.unanswered = told
            answer = wire.produce(topic.name, batch)
            assert answer.error_code == 0, answer
            topic.unanswered = []
            topic.acknowledged.update((answer.base_offset + number, one) for number, one in enumerate(told))
            topic.sequence += count
            topic.last_batch = batch, answer.base_offset

    def _record(self, topic: Topic, number: int) -> Told:
        key = b"key-%d" % self._random.randrange(KEYS)
        value = (
            None if self._random.random() < 0.15 else b"%d-" % number + bytes(self._random.randint(0, 200))
        )
        return key, value, TIMESTAMP + self._random.randrange(1000)

    def _maintain(self, wire: Wire) -> None:
        state, events = self._topics
        _carry_out(wire, events.name, MaintenanceAction.RETAIN)
        events.start = max(events.start, _start_of(wire, events.name))
        _carry_out(wire, state.name, MaintenanceAction.COMPACT)
        self.compactions += 1
        self.passed.set()


def _carry_out(wire: Wire, topic: str, action: MaintenanceAction) -> None:
    begun = wire.ask(MaintainTopicRequest(name=topic, action=action), 0)
    assert isinstance(begun, MaintainTopicResponse)
    assert begun.error_code == 0, begun.error_message
    while True:
        task = wire.ask(DescribeTopicTaskRequest(task_id=begun.task_id, max_wait_ms=1000), 0)
        assert isinstance(task, DescribeTopicTaskResponse)
        assert task.error_code == 0, task.error_message
        if task.is_over:
            return


def _start_of(wire: Wire, topic: str) -> int:
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)],
            )
        ]
    )
    response = wire.ask(request, 7)
    assert isinstance(response, ListOffsetsResponse)
    return response.topics[0].partitions[0].offset


def _read_all(wire: Wire, topic: str) -> tuple[int, list[Record]]:
    """Where the log begins, and all that it holds. Retention may let it begin later meanwhile."""
    offset = _start_of(wire, topic)
    found: list[Record] = []
    while True:
        part = wire.fetch(fetch_request(topic, {0: offset})).responses[0].partitions[0]
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            offset, found = _start_of(wire, topic), []
            continue
        assert part.error_code == 0, (topic, offset, part.error_code)
        view = memoryview(bytes(part.records or b""))
        before = offset
        while len(view) >= HEADER_SIZE and (header := read_header(view)).size <= len(view):
            found += records_of(view[: header.size], limit=UNPACKED_MAX)
            offset, view = header.last_offset + 1, view[header.size :]
        if offset == before:
            start = _start_of(wire, topic)
            return start, [one for one in found if one.offset >= start]


def _check(wire: Wire, topic: Topic) -> None:
    start, found = _read_all(wire, topic.name)
    assert start >= topic.start, "what was deleted came back"
    end = max(topic.acknowledged, default=-1) + 1
    if found and found[-1].offset >= end:
        # It was written, only the answer did not come.
        topic.acknowledged.update((end + number, told) for number, told in enumerate(topic.unanswered))
        topic.sequence += len(topic.unanswered)
        topic.last_batch = None
    topic.unanswered, topic.start = [], start
    assert [one.offset for one in found] == sorted({one.offset for one in found})
    for one in found:
        assert (one.key, one.value, one.timestamp) == topic.acknowledged.get(one.offset), one.offset
    if topic.name == EVENTS:
        assert {one.offset for one in found} == {offset for offset in topic.acknowledged if offset >= start}
    else:
        latest = {key: value for key, value, _ in topic.acknowledged.values()}
        now = {one.key: one.value for one in found}
        for key, value in latest.items():
            assert now.get(key) == value, f"{key!r} is lost, or older than it was"
    if topic.last_batch is not None:
        # A producer that saw its connection break asks once more.
        batch, offset = topic.last_batch
        answer = wire.produce(topic.name, batch)
        assert (answer.error_code, answer.base_offset) == (0, offset), "a retry was written again"


def kill_again_and_again(folder: Path, kills: int, seed: int) -> None:
    random = Random(seed)
    topics = Topic(STATE), Topic(EVENTS)
    broker = BrokerProcess(folder / "data", [word for setting in FAST for word in ("--set", setting)])
    compactions = 0
    try:
        broker.start()
        with Wire(broker.address) as wire:
            wire.create_topic(
                STATE,
                cleanup_policy="compact",
                segment_bytes="20000",
                min_cleanable_dirty_ratio="0.01",
                delete_retention_ms="0",
            )
            wire.create_topic(EVENTS, retention_bytes="60000", segment_bytes="15000", retention_ms="-1")
        for kill in range(kills):
            clients = Clients(broker.address, random, topics)
            clients.start()
            if kill % 2:
                assert clients.passed.wait(100)
            # A moment like any other: what is waited for is the kill itself.
            threading.Event().wait(random.uniform(0.0, 0.6))
            broker.kill()
            clients.join()
            compactions += clients.compactions
            broker.start()
            with Wire(broker.address) as wire:
                for topic in topics:
                    _check(wire, topic)
        assert broker.stop() == 0, broker.errors
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r}\n{broker.errors}") from error
    finally:
        broker.close()
    assert compactions >= kills // 2
    assert topics[1].start > 0
    assert len(topics[0].acknowledged) > 20 * kills


@pytest.mark.timeout(400)
def test_ten_kills_lose_nothing_and_bring_nothing_back(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 10, 1)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2, 7))
def test_two_hundred_kills_lose_nothing_and_bring_nothing_back(tmp_path: Path, seed: int) -> None:
    kill_again_and_again(tmp_path, 40, seed)
