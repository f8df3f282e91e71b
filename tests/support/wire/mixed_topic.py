"""Topics with a little of everything that a log may hold, written by librdkafka.

    make_topic(address, "t", partitions=3)
    with Writer(address, codec="zstd") as writer:
        writer.send("t", b"value", key=None, partition=1)
    write_mixture(address, "mixed")

Invariant: when a `Writer` closes, everything that was sent has been acknowledged.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from confluent_kafka import Producer

from flintmq.client.addresses import parse_addresses
from flintmq.client.admin.maintenance import maintain_topic
from flintmq.client.admin.topics import add_partitions, alter_topic, create_topic
from flintmq.client.cluster import ClusterClient
from flintmq.protocol.maintenance import MaintenanceAction, MaintenanceState

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 30.0
BIG_BYTES = 1_000_000

Headers = Sequence[tuple[str, bytes | None]]


class Writer:
    def __init__(self, address: str, *, codec: str = "none", transactional: bool = False) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": address,
            "compression.type": codec,
            "linger.ms": 20,
            "batch.num.messages": 200,
            "message.max.bytes": 2 * BIG_BYTES,
            "acks": "all",
            # It would tell of every broker that a test stops.
            "log_level": 2,
        }
        if transactional:
            settings["transactional.id"] = f"writer-{uuid.uuid4()}"
            # A transaction that a test leaves open stays so for as long as the test may last.
            settings["transaction.timeout.ms"] = 600_000
        self._producer = Producer(settings)
        self._failures: list[str] = []
        if transactional:
            self._producer.init_transactions(TIMEOUT_S)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> None:
        """With a timestamp of 0 the record has the time of now."""
        self._producer.produce(
            topic,
            value=value,
            key=key,
            partition=partition,
            headers=list(headers),
            timestamp=timestamp_ms,
            on_delivery=self._delivered,
        )

    def flush(self) -> None:
        left = self._producer.flush(TIMEOUT_S)
        assert left == 0, f"{left} records were not acknowledged in {TIMEOUT_S} s"
        assert not self._failures, self._failures

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self.flush()
        self._producer.abort_transaction(TIMEOUT_S)

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self._failures.append(str(error))

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()


def make_topic(address: str, name: str, *, partitions: int, **settings: str) -> None:
    """Settings by their names with `_` for `.`."""
    with ClusterClient(parse_addresses(address)) as client:
        create_topic(client, name, partitions=partitions, configs=_dotted(settings))


def grow_topic(address: str, name: str, *, partitions: int) -> None:
    with ClusterClient(parse_addresses(address)) as client:
        add_partitions(client, name, partitions)


def write_mixture(address: str, name: str, unfinished: Writer) -> None:
    """Three partitions: a compacted past with gaps; everything a record can be, in every codec; transactions.

    The writer `unfinished` must be transactional; its last transaction is left open.
    """
    # Some of its times are long ago, and retention is not to take them for old.
    make_topic(address, name, partitions=3, cleanup_policy="compact", segment_bytes="2000", retention_ms="-1")
    _write_gaps(address, name)
    _alter(address, name, cleanup_policy="delete", segment_bytes=str(1 << 30))
    for codec in CODECS:
        with Writer(address, codec=codec) as writer:
            _write_shapes(writer, name, codec)
    _alter(address, name, message_timestamp_type="LogAppendTime")
    with Writer(address) as writer:
        for number in range(10):
            writer.send(name, b"stamped %d" % number, partition=1, timestamp_ms=1_600_000_000_000)
    # So that most of it ends up in segments that are complete.
    _alter(address, name, message_timestamp_type="CreateTime", segment_bytes="2000")
    _write_transactions(address, name, unfinished)


def _write_gaps(address: str, name: str) -> None:
    with Writer(address) as writer:
        for number in range(600):
            writer.send(name, b"state %d" % number, key=b"%d" % (number % 20), partition=0)
            if number % 40 == 39:
                # A batch of its own, for a segment ends only between two batches.
                writer.flush()
    with ClusterClient(parse_addresses(address)) as client:
        done = maintain_topic(client, name, MaintenanceAction.COMPACT, partitions=[0])
    assert [one.state for one in done] == [MaintenanceState.DONE], done
    assert done[0].records_after < done[0].records_before, done


_KEYS: tuple[bytes | None, ...] = (b"key", None, b"", b"\xff\x00")
_HEADERS: tuple[Headers, ...] = (
    (),
    (("plain", b"x"),),
    (("same", b"1"), ("same", None), ("größe", b"\xff"), ("", b"")),
)


def _write_shapes(writer: Writer, name: str, codec: str) -> None:
    label = codec.encode()
    for number in range(100):
        writer.send(
            name,
            [label + b" %d" % number * 10, None, b""][number % 3],
            key=_KEYS[number % 4],
            headers=_HEADERS[number % 3],
            timestamp_ms=1_700_000_000_000 + number * 1000,
            partition=1,
        )
    writer.send(name, (label + b"-") * (BIG_BYTES // (len(label) + 1)), key=b"big", partition=1)


def _write_transactions(address: str, name: str, unfinished: Writer) -> None:
    """Two at once, one committed and one aborted, plain records between; then some in a row."""
    with Writer(address, transactional=True) as other, Writer(address) as plain:
        for round_number in range(3):
            unfinished.begin()
            other.begin()
            for number in range(30):
                for writer, word in ((unfinished, b"kept"), (other, b"dropped"), (plain, b"plain")):
                    writer.send(name, b"%s %d/%d" % (word, round_number, number), partition=2)
                    writer.flush()
            other.abort()
            unfinished.commit()
        for number in range(4):
            other.begin()
            other.send(name, b"alone %d" % number, partition=number % 3, key=b"alone")
            other.abort() if number % 2 else other.commit()
        unfinished.begin()
        unfinished.send(name, b"open", partition=2)
        unfinished.flush()
        plain.send(name, b"behind the open one", partition=2)


def _alter(address: str, name: str, **settings: str) -> None:
    with ClusterClient(parse_addresses(address)) as client:
        alter_topic(client, name, settings=_dotted(settings))


def _dotted(settings: Mapping[str, str]) -> dict[str, str]:
    return {setting.replace("_", "."): value for setting, value in settings.items()}
