"""A read–process–write loop of confluent-kafka, exactly once, though both sides are killed (F6, N1; KIP-447).

The programs are `tests/clients/python/read_process_write.py`: two of one group, one of them a static member. They and
the broker are killed at random moments, while numbers are written. What is read in the end, with `read_committed`, is
each number once, and in the order of its partition.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.broker.broker_process import BrokerProcess, clean_environment

PROGRAM = Path(__file__).resolve().parents[2] / "clients" / "python" / "read_process_write.py"
INPUT, OUTPUT, PARTITIONS = "in", "out", 3
PATIENCE_S = 60.0
PAUSE_S_MAX = 0.3
FAST = (
    "flint.rest.port=-1",
    "group.initial.rebalance.delay.ms=0",
    "group.min.session.timeout.ms=500",
)


class Worker:
    """One of the programs. It may crash, and is started again."""

    def __init__(self, address: str, name: str, folder: Path, *options: str) -> None:
        self._command = [sys.executable, str(PROGRAM), address, INPUT, OUTPUT, name, *options]
        self._error_log = folder / f"{name}.stderr"
        self._process: subprocess.Popen[bytes] | None = None

    def keep_running(self) -> None:
        if self._process is None or self._process.poll() is not None:
            with self._error_log.open("ab") as errors:
                self._process = subprocess.Popen(self._command, stderr=errors, env=clean_environment())

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def errors(self) -> str:
        return self._error_log.read_text()[-4000:] if self._error_log.exists() else ""


class World:
    def __init__(self, broker: BrokerProcess, workers: Sequence[Worker], random: Random) -> None:
        self.broker = broker
        self.workers = workers
        self._random = random
        self.written: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.read: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self._next = 0
        settings: dict[str, Any] = {
            "bootstrap.servers": broker.address,
            "reconnect.backoff.max.ms": 200,
            "log_level": 2,
        }
        self._producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 0})
        self._reader = Consumer(
            {**settings, "group.id": "none", "isolation.level": "read_committed", "enable.auto.commit": False}
        )
        self._reader.assign([TopicPartition(OUTPUT, index, 0) for index in range(PARTITIONS)])

    def close(self) -> None:
        self._reader.close()

    def write(self, count: int) -> None:
        for number in range(self._next, self._next + count):
            partition = self._random.randrange(PARTITIONS)
            self._producer.produce(INPUT, b"%d" % number, partition=partition)
            self.written[partition].append(number)
        self._next += count
        assert self._producer.flush(PATIENCE_S) == 0

    def read_until(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while sum(map(len, self.read)) < count:
            assert time.monotonic() < deadline, f"{sum(map(len, self.read))} of {count} numbers came"
            for worker in self.workers:
                worker.keep_running()
            self._take(0.1)
        self.check()

    def read_to_the_end(self) -> None:
        """All that is there, which is known by records of our own behind it."""
        for partition in range(PARTITIONS):
            self._producer.produce(OUTPUT, b"-1", partition=partition)
        assert self._producer.flush(PATIENCE_S) == 0
        deadline = time.monotonic() + PATIENCE_S
        while not all(numbers and numbers[-1] == -1 for numbers in self.read):
            assert time.monotonic() < deadline, "the end did not come"
            self._take(1.0)
        for numbers in self.read:
            numbers.pop()
        assert self.read == self.written

    def _take(self, timeout_s: float) -> None:
        for message in self._reader.consume(500, timeout_s):
            # Else the broker is away, which the reader tells and outlives.
            if message.error() is None:
                partition, value = message.partition(), message.value()
                assert partition is not None
                assert value is not None
                self.read[partition].append(int(value))

    def check(self) -> None:
        """So far: nothing lost, nothing twice."""
        for written, read in zip(self.written, self.read, strict=True):
            assert read == written[: len(read)]

    def kill(self) -> None:
        """One of the programs, the broker, or everything. A moment like any other: what is waited for is the kill."""
        threading.Event().wait(self._random.uniform(0.0, PAUSE_S_MAX))
        victim = self._random.choice(["first", "second", "broker", "broker", "all"])
        if victim in ("first", "all"):
            self.workers[0].kill()
        if victim in ("second", "all"):
            self.workers[1].kill()
        if victim in ("broker", "all"):
            self.broker.kill()
            self.broker.start()


def kill_again_and_again(folder: Path, kills: int, seed: int) -> None:
    random = Random(seed)
    with ExitStack() as ends:
        broker = BrokerProcess(folder / "data", [word for one in FAST for word in ("--set", one)]).start()
        ends.callback(broker.close)
        broker.args += ["--port", str(broker.port)]
        admin = AdminClient({"bootstrap.servers": broker.address})
        topics = [NewTopic(INPUT, PARTITIONS), NewTopic(OUTPUT, PARTITIONS)]
        for made in admin.create_topics(topics).values():
            made.result(PATIENCE_S)
        workers = [
            Worker(broker.address, "first", folder, "static"),
            Worker(broker.address, "second", folder),
        ]
        for worker in workers:
            ends.callback(worker.kill)
        world = World(broker, workers, random)
        ends.callback(world.close)
        try:
            for _ in range(kills):
                world.write(200)
                world.read_until(sum(map(len, world.read)) + random.randint(1, 100))
                world.kill()
            world.read_until(sum(map(len, world.written)))
            world.read_to_the_end()
            for worker in workers:
                worker.kill()
            assert broker.stop() == 0
        except Exception as error:
            said = "\n".join(worker.errors for worker in workers)
            raise AssertionError(f"seed {seed}: {error!r}\n{broker.errors}\n{said}") from error


@pytest.mark.timeout(240)
def test_every_number_is_processed_once_over_six_kills(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 6, 1)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2, 8))
def test_every_number_is_processed_once_over_sixty_kills(tmp_path: Path, seed: int) -> None:
    kill_again_and_again(tmp_path, 60, seed)
