"""Real Kafka clients behind one small face: produce these records, read so many from an offset.

Simple consumers only: partitions are assigned, no group is joined.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import subprocess
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import aiokafka
import confluent_kafka
import kafka
import pytest

T = TypeVar("T")
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Message:
    value: bytes | None
    key: bytes | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = field(default=-1, compare=False)


class Failed(Exception):
    """The broker refused a record, with this error code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class KafkaClient(Protocol):
    def produce(self, address: str, topic: str, messages: Sequence[Message], **options: Any) -> list[int]:
        """Write to partition 0, wait for all; their offsets. Failed if one is refused."""
        ...

    def consume(self, address: str, topic: str, offset: int, count: int) -> list[Message]:
        """So many from an offset of partition 0."""
        ...

    def ends(self, address: str, topic: str) -> tuple[int, int]:
        """First offset and the one after the last, of partition 0."""
        ...

    def offset_at(self, address: str, topic: str, timestamp: int) -> int | None:
        """The first offset of partition 0 whose record is not older; None if there is none."""
        ...


class Confluent:
    """librdkafka."""

    def produce(self, address: str, topic: str, messages: Sequence[Message], **options: Any) -> list[int]:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": address, "linger.ms": 5, "message.max.bytes": 100_000_000, **options}
        )
        reports: list[tuple[Any, Any]] = []
        for message in messages:
            producer.produce(
                topic,
                message.value,
                message.key,
                0,
                on_delivery=lambda error, report: reports.append((error, report)),
                timestamp=message.timestamp or 0,
                headers=list(message.headers),
            )
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0
        for error, _ in reports:
            if error is not None:
                raise Failed(error.code())
        return [report.offset() for _, report in reports]

    def consumer(self, address: str, **options: Any) -> Any:
        return confluent_kafka.Consumer(
            {"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False, **options}
        )

    def consume(self, address: str, topic: str, offset: int, count: int) -> list[Message]:
        consumer = self.consumer(address)
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, offset)])
            found: list[Any] = []
            while len(found) < count:
                batch = consumer.consume(count - len(found), TIMEOUT_S)
                assert batch, f"{len(found)} of {count} messages came"
                found += batch
            assert not [one.error() for one in found if one.error()]
            return [
                Message(
                    one.value(),
                    one.key(),
                    one.timestamp()[1],
                    tuple(one.headers() or ()),
                    offset=one.offset(),
                )
                for one in found
            ]
        finally:
            consumer.close()

    def ends(self, address: str, topic: str) -> tuple[int, int]:
        consumer = self.consumer(address)
        try:
            low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), TIMEOUT_S)
            return low, high
        finally:
            consumer.close()

    def offset_at(self, address: str, topic: str, timestamp: int) -> int | None:
        consumer = self.consumer(address)
        try:
            wanted = confluent_kafka.TopicPartition(topic, 0, timestamp)
            (found,) = consumer.offsets_for_times([wanted], TIMEOUT_S)
            # librdkafka says "end" where there is none.
            return None if found.offset < 0 else int(found.offset)
        finally:
            consumer.close()


class KafkaPython:
    def produce(self, address: str, topic: str, messages: Sequence[Message], **options: Any) -> list[int]:
        settings: dict[str, Any] = {"linger_ms": 5, "max_request_size": 100_000_000, "acks": "all"}
        settings |= {name.replace(".", "_"): value for name, value in options.items()}
        settings["compression_type"] = {"none": None}.get(
            settings.get("compression_type", "none"), settings.get("compression_type")
        )
        producer = kafka.KafkaProducer(bootstrap_servers=address, **settings)
        try:
            sent = [
                producer.send(
                    topic,
                    message.value,
                    message.key,
                    headers=list(message.headers),
                    partition=0,
                    timestamp_ms=message.timestamp,
                )
                for message in messages
            ]
            producer.flush(TIMEOUT_S)
            try:
                return [future.get(TIMEOUT_S).offset for future in sent]
            except kafka.errors.KafkaError as error:
                raise Failed(error.errno) from error
        finally:
            producer.close()

    def consume(self, address: str, topic: str, offset: int, count: int) -> list[Message]:
        consumer, partition = self._assigned(address, topic)
        try:
            consumer.seek(partition, offset)
            found: list[Any] = []
            while len(found) < count:
                batch = consumer.poll(TIMEOUT_S * 1000, max_records=count - len(found))
                assert batch, f"{len(found)} of {count} messages came"
                found += batch[partition]
            return [
                Message(one.value, one.key, one.timestamp, tuple(one.headers), offset=one.offset)
                for one in found
            ]
        finally:
            consumer.close()

    def ends(self, address: str, topic: str) -> tuple[int, int]:
        consumer, partition = self._assigned(address, topic)
        try:
            first, last = consumer.beginning_offsets([partition]), consumer.end_offsets([partition])
            return first[partition], last[partition]
        finally:
            consumer.close()

    def offset_at(self, address: str, topic: str, timestamp: int) -> int | None:
        consumer, partition = self._assigned(address, topic)
        try:
            found = consumer.offsets_for_times({partition: timestamp})[partition]
            return None if found is None else found.offset
        finally:
            consumer.close()

    def _assigned(self, address: str, topic: str) -> tuple[Any, Any]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=address, group_id=None, max_partition_fetch_bytes=100_000_000
        )
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        return consumer, partition


class Aiokafka:
    def produce(self, address: str, topic: str, messages: Sequence[Message], **options: Any) -> list[int]:
        settings: dict[str, Any] = {"linger_ms": 5, "max_request_size": 100_000_000, "acks": "all"}
        settings |= {name.replace(".", "_"): value for name, value in options.items()}
        if settings.get("compression_type") == "none":
            settings["compression_type"] = None

        async def run() -> list[int]:
            async with aiokafka.AIOKafkaProducer(bootstrap_servers=address, **settings) as producer:
                sent = [
                    await producer.send(
                        topic,
                        message.value,
                        message.key,
                        partition=0,
                        timestamp_ms=message.timestamp,
                        headers=list(message.headers),
                    )
                    for message in messages
                ]
                try:
                    reports = [await future for future in sent]
                except aiokafka.errors.KafkaError as error:
                    raise Failed(error.errno) from error
                return [-1 if report is None else report.offset for report in reports]

        return _run(run())

    def consume(self, address: str, topic: str, offset: int, count: int) -> list[Message]:
        async def run(consumer: Any, partition: Any) -> list[Message]:
            consumer.seek(partition, offset)
            found: list[Any] = []
            while len(found) < count:
                batch = await consumer.getmany(
                    timeout_ms=int(TIMEOUT_S * 1000), max_records=count - len(found)
                )
                assert batch, f"{len(found)} of {count} messages came"
                found += batch[partition]
            return [
                Message(one.value, one.key, one.timestamp, tuple(one.headers), offset=one.offset)
                for one in found
            ]

        return self._with_consumer(address, topic, run)

    def ends(self, address: str, topic: str) -> tuple[int, int]:
        async def run(consumer: Any, partition: Any) -> tuple[int, int]:
            first = await consumer.beginning_offsets([partition])
            last = await consumer.end_offsets([partition])
            return first[partition], last[partition]

        return self._with_consumer(address, topic, run)

    def offset_at(self, address: str, topic: str, timestamp: int) -> int | None:
        async def run(consumer: Any, partition: Any) -> int | None:
            found = (await consumer.offsets_for_times({partition: timestamp}))[partition]
            return None if found is None else found.offset

        return self._with_consumer(address, topic, run)

    def _with_consumer(
        self, address: str, topic: str, work: Callable[[Any, Any], Coroutine[Any, Any, T]]
    ) -> T:
        async def run() -> T:
            partition = aiokafka.TopicPartition(topic, 0)
            async with aiokafka.AIOKafkaConsumer(
                bootstrap_servers=address, group_id=None, max_partition_fetch_bytes=100_000_000
            ) as consumer:
                consumer.assign([partition])
                return await work(consumer, partition)

        return _run(run())


class Kcat:
    """The command; it cannot say everything that the libraries can."""

    def run(self, *args: str, given: bytes = b"") -> bytes:
        program = shutil.which("kcat")
        if program is None:
            pytest.skip("toolchain: kcat is not installed")
        return subprocess.run(
            [program, *args], input=given, capture_output=True, timeout=TIMEOUT_S, check=True
        ).stdout

    def consume(self, address: str, topic: str, count: int) -> list[dict[str, Any]]:
        output = self.run(
            *("-C", "-b", address, "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count), "-e", "-J")
        )
        return [json.loads(line) for line in output.splitlines()]


CLIENTS: dict[str, KafkaClient] = {
    "confluent-kafka": Confluent(),
    "kafka-python": KafkaPython(),
    "aiokafka": Aiokafka(),
}

_KAFKA_PYTHON_CODECS = {"snappy": "snappy", "lz4": "lz4", "zstd": "zstandard"}


def need_codec(client: str, codec: str) -> None:
    """kafka-python leaves compression to other packages."""
    module = _KAFKA_PYTHON_CODECS.get(codec)
    if client == "kafka-python" and module is not None and importlib.util.find_spec(module) is None:
        pytest.skip(f"toolchain: kafka-python needs the package {module} for {codec}")


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, TIMEOUT_S))
