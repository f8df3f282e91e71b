"""A Kafka Streams word count with `processing.guarantee=exactly_once_v2`, killed in the middle (F6, N1, R7).

The program is `tests/clients/java/WordCount.java`. It writes every change of a count, so that the counts of each
word, read with `read_committed`, are 1, 2, 3, … if and only if each line was counted once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.broker.broker_process import BrokerProcess, StartBroker
from support.clients.java_program import JavaProgram, compile_java

LINES, COUNTS, PARTITIONS = "lines", "counts", 2
WORDS = [f"word-{number}" for number in range(12)]
SEED = 1
END = b"end"
PATIENCE_S = 60.0

Counts = dict[str, list[int]]


class Story:
    """What was written, and what has been counted so far."""

    def __init__(self, address: str, random: Random) -> None:
        admin = AdminClient({"bootstrap.servers": address})
        for made in admin.create_topics([NewTopic(LINES, PARTITIONS), NewTopic(COUNTS, PARTITIONS)]).values():
            made.result(PATIENCE_S)
        self._random = random
        self._producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
        self._reader = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "none",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._reader.assign([TopicPartition(COUNTS, index, 0) for index in range(PARTITIONS)])
        self.written: dict[str, int] = dict.fromkeys(WORDS, 0)
        self.counted: Counts = {word: [] for word in WORDS}

    def close(self) -> None:
        self._reader.close()

    def write(self, count: int) -> None:
        for _ in range(count):
            words = self._random.choices(WORDS, k=3)
            self._producer.produce(LINES, " ".join(words), partition=self._random.randrange(PARTITIONS))
            for word in words:
                self.written[word] += 1
        assert self._producer.flush(PATIENCE_S) == 0

    def read_until(self, count: int) -> None:
        """Until so many changes have been read, which is how many words have been counted."""
        deadline = time.monotonic() + PATIENCE_S
        while sum(map(len, self.counted.values())) < count:
            assert time.monotonic() < deadline, self.counted
            for message in self._reader.consume(500, 0.2):
                self._take(message)

    def read_to_the_end(self) -> None:
        """All that is there, which is known by records of our own behind it."""
        for index in range(PARTITIONS):
            self._producer.produce(COUNTS, key=END, partition=index)
        assert self._producer.flush(PATIENCE_S) == 0
        ends = 0
        while ends < PARTITIONS:
            (message,) = self._reader.consume(1, PATIENCE_S)
            if message.key() == END:
                ends += 1
            else:
                self._take(message)

    def _take(self, message: Message) -> None:
        assert message.error() is None, message.error()
        word, number = message.key(), message.value()
        assert word is not None
        assert number is not None
        self.counted[word.decode()].append(int(number))

    @property
    def words(self) -> int:
        return sum(self.written.values())


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(
        "--set", "group.initial.rebalance.delay.ms=0", "--set", "group.min.session.timeout.ms=500"
    )


@pytest.fixture
def word_count(broker: BrokerProcess, tmp_path: Path) -> Iterator[JavaProgram]:
    folder = tmp_path / "streams"
    folder.mkdir()
    compile_java(folder, ["WordCount"], jars=["kafka-streams"])
    arguments = [broker.address, LINES, COUNTS, str(tmp_path / "state")]
    program = JavaProgram("WordCount", arguments, folder, jars=["kafka-streams"])
    yield program
    program.close()


@pytest.mark.timeout(240)
def test_a_word_count_is_exact_though_it_and_the_broker_are_killed(
    broker: BrokerProcess, word_count: JavaProgram
) -> None:
    broker.args += ["--port", str(broker.port)]
    with closing(Story(broker.address, Random(SEED))) as story:
        word_count.start()
        word_count.expect_line("running")
        story.write(400)
        # Some of them are counted, and most likely a transaction is open.
        story.read_until(1)
        word_count.kill()
        story.write(400)
        word_count.start()
        word_count.expect_line("running")
        story.read_until(story.words // 2)
        broker.kill()
        broker.start()
        story.write(400)
        story.read_until(story.words)
        assert word_count.end_input() == 0, word_count.errors
        story.read_to_the_end()
        assert story.counted == {word: list(range(1, count + 1)) for word, count in story.written.items()}
