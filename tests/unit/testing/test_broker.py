"""The broker for tests: how it starts and ends, what it shows, its clock and its snapshots (N3)."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from flintmq.errors import ConfigurationError, ErrorCode, RequestError
from flintmq.protocol.messages import DeleteRecordsRequest, DescribeConfigsRequest, DescribeConfigsResponse
from flintmq.testing import Broker, Record, RequestLog, SeenRequest
from support.wire.wire import Wire, batch_of, fetch_request, values_of

START_S = 0.1
NOON_MS = 1_700_000_000_000
DAY_S = 86_400


# ---- life


def test_it_starts_in_under_100_ms() -> None:
    took = []
    for _ in range(5):
        began = time.perf_counter()
        with Broker():
            took.append(time.perf_counter() - began)
    assert min(took) < START_S, took


def test_nothing_is_left_at_the_end() -> None:
    threads = set(threading.enumerate())
    with Broker() as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("a")
        wire.produce("a", batch_of(b"x"))
        folder, address = broker.data_dir, ("127.0.0.1", broker.port)
        assert Path(folder).is_dir()
    assert not Path(folder).exists()
    assert set(threading.enumerate()) == threads
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


def test_a_broker_that_cannot_start_leaves_nothing(broker: Broker) -> None:
    threads = set(threading.enumerate())
    with pytest.raises(ConfigurationError, match="Cannot listen"):
        Broker(port=broker.port).start()
    assert set(threading.enumerate()) == threads


def test_many_run_side_by_side() -> None:
    with Broker() as one, Broker() as other:
        one.produce("a", "x")
        assert one.port != other.port
        assert (one.topics(), other.topics()) == ({"a": 1}, {})


def test_the_process_is_left_alone() -> None:
    logging_before = (logging.getLogger().level, list(logging.getLogger().handlers))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    limits, frozen = resource.getrlimit(resource.RLIMIT_NOFILE), gc.get_freeze_count()
    with Broker():
        assert (logging.getLogger().level, list(logging.getLogger().handlers)) == logging_before
        assert {number: signal.getsignal(number) for number in handlers} == handlers
        assert (resource.getrlimit(resource.RLIMIT_NOFILE), gc.get_freeze_count()) == (limits, frozen)


def test_the_environment_does_not_configure_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLINTMQ_NUM_PARTITIONS", "7")
    with Broker() as broker:
        broker.produce("a", "x")
        assert broker.topics() == {"a": 1}


def test_settings_come_by_kafkas_names_or_as_keywords() -> None:
    with Broker({"num.partitions": 3}, auto_create_topics_enable=False, rest_port=-1) as broker:
        with Wire(broker.bootstrap_servers) as wire:
            told = wire.metadata("a", create=True).topics[0]
            assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.produce("a", "x")
        assert broker.topics() == {"a": 3}


def test_an_unknown_setting_suggests_the_near_one() -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean num\.partitions"):
        Broker(num_partitons=3).start()
    with pytest.raises(ConfigurationError, match="data_dir"):
        Broker({"log.dirs": "/nowhere"})


def test_a_given_folder_is_kept(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.produce("a", "x")
    with Broker(data_dir=tmp_path) as broker:
        assert [record.value for record in broker.records("a")] == [b"x"]


def test_a_restart_keeps_address_and_records(broker: Broker) -> None:
    broker.produce("a", "x")
    before = broker.bootstrap_servers
    broker.restart()
    assert broker.bootstrap_servers == before
    with Wire(before) as wire:
        assert values_of(wire.fetch(fetch_request("a", {0: 0}))) == {0: [b"x"]}


def test_a_stopped_broker_says_so() -> None:
    broker = Broker()
    for use in (broker.topics, lambda: broker.bootstrap_servers, lambda: broker.data_dir):
        with pytest.raises(RuntimeError, match="does not run"):
            use()
    broker.stop()


def test_it_runs_once_at_a_time(broker: Broker) -> None:
    with pytest.raises(RuntimeError, match="already"):
        broker.start()


def test_it_serves_a_client_on_the_tests_own_loop() -> None:
    async def test() -> bytes:
        async with Broker() as broker:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x07\xff\xff")  # ApiVersions 0, correlation id 7
            answer = await reader.readexactly(8)
            writer.close()
            await writer.wait_closed()
            return answer[4:]

    assert asyncio.run(test()) == b"\0\0\0\x07"


# ---- content


def test_records_are_shown_as_they_are_stored(broker: Broker) -> None:
    broker.create_topic("a", 2)
    with Wire(broker.bootstrap_servers) as wire:
        wire.produce("a", batch_of(b"x", None, key=b"k", timestamp=NOON_MS), partition=1)
    broker.produce("a", "y", timestamp=NOON_MS + 1, headers=[("h", b"1")])
    assert broker.records("a") == [
        Record("a", 0, 0, NOON_MS + 1, None, b"y", (("h", b"1"),)),
        Record("a", 1, 0, NOON_MS, b"k", b"x"),
        Record("a", 1, 1, NOON_MS, b"k", None),
    ]
    assert [record.offset for record in broker.records("a", 1)] == [0, 1]


def test_what_is_produced_here_is_what_a_consumer_gets(broker: Broker) -> None:
    broker.create_topic("a", configs={"compression.type": "zstd", "flush.messages": 1})
    written = broker.produce("a", "x", b"y", None, partition=0)
    assert [(record.offset, record.value) for record in written] == [(0, b"x"), (1, b"y"), (2, None)]
    with Wire(broker.bootstrap_servers) as wire:
        assert values_of(wire.fetch(fetch_request("a", {0: 0}))) == {0: [b"x", b"y", None]}


def test_a_key_goes_where_kafkas_own_client_puts_it(broker: Broker) -> None:
    broker.create_topic("a", 10)
    # Java's murmur2 of "foobar" is -790332482.
    assert broker.produce("a", "x", key="foobar")[0].partition == (-790332482 & 0x7FFFFFFF) % 10


def test_records_deleted_from_the_start_are_not_shown(broker: Broker) -> None:
    broker.produce("a", "x", "y", "z")
    with Wire(broker.bootstrap_servers) as wire:
        delete_records(wire, "a", 2)
    assert [record.value for record in broker.records("a")] == [b"z"]


def test_what_does_not_exist_is_an_error(broker: Broker) -> None:
    broker.create_topic("a")
    for wrong in (
        lambda: broker.records("nothing"),
        lambda: broker.records("a", 1),
        lambda: broker.produce("a", "x", partition=1),
        lambda: broker.delete_topic("nothing"),
    ):
        with pytest.raises(RequestError) as refused:
            wrong()
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(ValueError, match="nothing to produce"):
        broker.produce("a")


def test_topics_come_and_go(broker: Broker) -> None:
    broker.create_topic("b", 3)
    broker.create_topic("a")
    assert broker.topics() == {"a": 1, "b": 3}
    broker.delete_topic("b")
    assert broker.topics() == {"a": 1}


def delete_records(wire: Wire, topic: str, offset: int) -> None:
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    wire.ask(
        DeleteRecordsRequest(
            timeout_ms=1000,
            topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[partition])],
        ),
        2,
    )


# ---- requests


def test_requests_are_noted(broker: Broker, wire: Wire) -> None:
    wire.metadata("a", version=9)
    wire.create_topic("b")
    assert list(broker.requests) == [
        SeenRequest("Metadata", 9, "test"),
        SeenRequest("CreateTopics", 7, "test"),
    ]
    assert broker.requests.of("Metadata") == [SeenRequest("Metadata", 9, "test")]
    assert broker.requests.count("Metadata") == 1
    broker.requests.clear()
    assert (len(broker.requests), broker.requests.count("Metadata")) == (0, 0)


def test_what_the_test_does_itself_is_not_noted(broker: Broker) -> None:
    broker.produce("a", "x")
    broker.records("a")
    assert len(broker.requests) == 0


def test_the_oldest_requests_are_forgotten_but_counted() -> None:
    log = RequestLog(kept=2)
    for version in range(3):
        log.add(SeenRequest("Fetch", version, None))
    assert [request.version for request in log] == [1, 2]
    assert log.count("Fetch") == 3
    log.wait_for("Fetch", 3)


def test_a_request_that_does_not_come_times_out() -> None:
    with pytest.raises(TimeoutError, match="0 of 1 Fetch"):
        RequestLog().wait_for("Fetch", timeout_s=0.01)


# ---- clock


def test_append_time_is_the_clocks(broker: Broker) -> None:
    broker.create_topic("a", configs={"message.timestamp.type": "LogAppendTime"})
    broker.clock.set(NOON_MS)
    with Wire(broker.bootstrap_servers) as wire:
        wire.produce("a", batch_of(b"x", timestamp=5))
        broker.clock.advance(1.5)
        wire.produce("a", batch_of(b"y", timestamp=5))
    assert [record.timestamp for record in broker.records("a")] == [NOON_MS, NOON_MS + 1500]


def test_timestamps_are_checked_against_the_clock(broker: Broker, wire: Wire) -> None:
    broker.create_topic("a", configs={"message.timestamp.after.max.ms": 1000})
    broker.clock.set(NOON_MS)
    assert wire.produce("a", batch_of(b"x", timestamp=NOON_MS + 1000)).error_code == 0
    late = batch_of(b"x", timestamp=NOON_MS + 1001)
    assert wire.produce("a", late).error_code == ErrorCode.INVALID_TIMESTAMP
    broker.clock.advance(1)
    assert wire.produce("a", late).error_code == 0


def test_segments_roll_when_the_clock_says_so(broker: Broker) -> None:
    broker.create_topic("a", configs={"segment.ms": 3_600_000})
    broker.clock.set(NOON_MS)
    broker.produce("a", "x")
    broker.produce("a", "y")
    broker.clock.advance(DAY_S)
    broker.produce("a", "z")
    segments = sorted(path.name for path in Path(broker.data_dir, "a-0").glob("*.log"))
    assert segments == [f"{0:020d}.log", f"{2:020d}.log"]


def test_a_running_clock_goes_on_running_after_an_advance(broker: Broker) -> None:
    before = broker.clock.now_ms()
    broker.clock.advance(DAY_S)
    after = broker.clock.now_ms()
    assert after >= before + DAY_S * 1000
    broker.clock.set(0)
    assert broker.clock.now_ms() == 0
    broker.clock.release()
    assert before <= broker.clock.now_ms() < after
    with pytest.raises(ValueError, match="forward"):
        broker.clock.advance(-1)


# ---- snapshots


def test_a_snapshot_brings_topics_records_and_settings_back(broker: Broker) -> None:
    broker.create_topic("a", 2, {"retention.ms": 12345})
    broker.produce("a", "x", "y", partition=1)
    broker.create_topic("empty")
    with Wire(broker.bootstrap_servers) as wire:
        topic_id = wire.metadata("a").topics[0].topic_id
        broker.produce("deleted", "1", "2", "3")
        delete_records(wire, "deleted", 1)
    snapshot = broker.snapshot()

    broker.produce("a", "z", partition=1)
    broker.delete_topic("empty")
    broker.create_topic("new")
    address = broker.bootstrap_servers
    for _ in range(2):
        broker.restore(snapshot)
        assert broker.bootstrap_servers == address
        assert broker.topics() == {"a": 2, "deleted": 1, "empty": 1}
        assert [(record.partition, record.value) for record in broker.records("a")] == [(1, b"x"), (1, b"y")]
        assert [record.value for record in broker.records("deleted")] == [b"2", b"3"]
        with Wire(address) as wire:
            assert wire.metadata("a").topics[0].topic_id == topic_id
            assert retention_ms(wire, "a") == "12345"
            assert wire.produce("a", batch_of(b"z"), partition=1).base_offset == 2


def test_a_snapshot_is_taken_under_the_feet_of_a_client(broker: Broker, wire: Wire) -> None:
    wire.create_topic("a")
    wire.send(fetch_request("a", {0: 0}, max_wait_ms=60_000), 12)
    broker.requests.wait_for("Fetch")
    snapshot = broker.snapshot()
    broker.produce("a", "x")
    response = wire.receive()[1]
    assert values_of(response) == {0: [b"x"]}  # type: ignore[arg-type]
    assert snapshot.size_bytes > 0


def test_a_snapshot_may_go_into_another_broker(broker: Broker) -> None:
    broker.produce("a", "x")
    with Broker() as other:
        other.produce("b", "y")
        other.restore(broker.snapshot())
        assert other.topics() == {"a": 1}
        assert [record.value for record in other.records("a")] == [b"x"]


def test_faults_clock_and_requests_outlive_a_restore(broker: Broker) -> None:
    broker.create_topic("a", configs={"message.timestamp.type": "LogAppendTime"})
    broker.clock.set(NOON_MS)
    broker.faults.fail("Produce", error="NOT_LEADER_OR_FOLLOWER")
    broker.restore(broker.snapshot())
    with Wire(broker.bootstrap_servers) as wire:
        assert wire.produce("a", batch_of(b"x")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert wire.produce("a", batch_of(b"x")).error_code == 0
    assert [record.timestamp for record in broker.records("a")] == [NOON_MS]
    assert broker.requests.count("Produce") == 2


def retention_ms(wire: Wire, topic: str) -> str | None:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name=topic, configuration_keys=["retention.ms"]
    )
    response = wire.ask(DescribeConfigsRequest(resources=[resource]), 4)
    assert isinstance(response, DescribeConfigsResponse)
    return response.results[0].configs[0].value
