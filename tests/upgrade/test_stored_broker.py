"""A data directory that version 0.1.0 wrote, stopped cleanly or killed under load, is served by today's broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import ProduceResponse
from support.cli import command
from support.upgrade.archives import expected, unpack
from support.upgrade.contents import TIMEOUT_S, contents, read_records, read_topics
from support.upgrade.past_broker import PastBroker
from support.upgrade.stored_broker import TIME_MS, idempotent_batch
from support.wire.transactions import WireProducer, state_of
from support.wire.wire import Wire, produce_request

FIXTURES = ("broker-clean", "broker-killed")
Json = dict[str, Any]


@pytest.fixture(params=FIXTURES)
def stored(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def promised(stored: str) -> Json:
    found: Json = expected(stored)
    return found


@pytest.fixture
def broker(stored: str, promised: Json, tmp_path: Path) -> Iterator[PastBroker]:
    started = PastBroker(unpack(stored, tmp_path) / "data", promised["stopped_ms"])
    with started:
        yield started


def _stored_parts(found: Json) -> Json:
    return {name: found[name] for name in ("topics", "groups", "broker configs")}


def test_contents_are_served_before_and_after_another_restart(broker: PastBroker, promised: Json) -> None:
    groups = list(promised["groups"])
    assert contents(broker.address, groups) == _stored_parts(promised)
    assert broker.stop() == 0
    broker.start()
    assert contents(broker.address, groups) == _stored_parts(promised)


def test_offline_commands_read_the_directory(stored: str, promised: Json, tmp_path: Path) -> None:
    directory = unpack(stored, tmp_path) / "data"
    assert "all sound" in command.run("log", "verify", str(directory)).out
    found: dict[str, list[int]] = {}
    for line in command.run("dump-log", str(directory), "--records", "--json").json_lines:
        assert not line.get("damage"), line
        if line["type"] == "record":
            found.setdefault(Path(line["file"]).parent.name, []).append(line["offset"])
    for topic, described in promised["topics"].items():
        for index, partition in described["partitions"].items():
            offsets = {one for one in found.get(f"{topic}-{index}", []) if one >= partition["start"]}
            # The files also hold control records, which no client is shown.
            assert offsets >= {one[0] for one in partition["records"]}


def test_an_idempotent_producer_continues_its_sequence(broker: PastBroker, promised: Json) -> None:
    producer = promised["producers"]["idempotent"]
    with Wire(broker.address) as wire:

        def send(base: int) -> tuple[ErrorCode, int]:
            response = wire.ask(produce_request("idempotent", idempotent_batch(producer, base)), 9)
            assert isinstance(response, ProduceResponse)
            (one,) = response.responses[0].partition_responses
            return ErrorCode(one.error_code), one.base_offset

        assert send(3) == (ErrorCode.NONE, 3), "a batch that is stored is not appended again"
        assert send(12)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(6) == (ErrorCode.NONE, 6)


def test_an_open_transaction_is_committed_by_its_producer(broker: PastBroker, promised: Json) -> None:
    held = promised["topics"]["transactional"]["partitions"]["0"]
    with Wire(broker.address) as wire:
        assert state_of(wire, "open") == "Ongoing"
        producer = WireProducer(wire, "open")
        stored = promised["producers"]["open"]
        producer.producer_id, producer.epoch = stored["producer id"], stored["epoch"]
        assert producer.end(committed=True) is ErrorCode.NONE
    found = _wait_until_stable(broker.address, "transactional", 0)
    assert found["committed"] == held["committed"] + [held["end"] - 2, held["end"] - 1]
    (position,) = contents(broker.address, ["transactional"])["groups"]["transactional"].values()
    assert position == [40, ""]


def test_a_transactional_producer_replaces_the_one_that_left_a_transaction(
    broker: PastBroker, promised: Json
) -> None:
    before = promised["topics"]["transactional"]["partitions"]["1"]
    for transactional_id in ("left", "finished"):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.address, "transactional.id": transactional_id}
        )
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("transactional", f"again {transactional_id}", partition=1, timestamp=TIME_MS)
        producer.commit_transaction(TIMEOUT_S)
    _, _, records = read_records(broker.address, {"transactional": 2}, isolation="read_committed")[
        "transactional", 1
    ]
    assert [one[0] for one in records[:-2]] == before["committed"]
    assert [one[3] for one in records[-2:]] == ["again left", "again finished"]


def test_further_records_follow_the_stored_ones(broker: PastBroker, promised: Json) -> None:
    for codec in ("gzip", "zstd"):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.address, "enable.idempotence": True, "compression.type": codec}
        )
        for topic in ("plain", "compacted", "load"):
            producer.produce(topic, f"more {codec}", key="more", partition=0, timestamp=TIME_MS)
        assert producer.flush(TIMEOUT_S) == 0
        assert broker.stop() == 0
        broker.start()
    counts = {topic: len(promised["topics"][topic]["partitions"]) for topic in ("plain", "compacted", "load")}
    found = read_records(broker.address, counts, isolation="read_committed")
    for topic in counts:
        before = promised["topics"][topic]["partitions"]["0"]
        _, end, records = found[topic, 0]
        assert records[:-2] == before["records"]
        assert (records[-2][0], end) == (before["end"], before["end"] + 2)


def _wait_until_stable(address: str, topic: str, index: int) -> Json:
    """Read a partition once markers of ended transactions are written."""
    while True:
        found: Json = read_topics(address, {topic: 2})[topic][str(index)]
        if found["stable"] == found["end"]:
            return found
