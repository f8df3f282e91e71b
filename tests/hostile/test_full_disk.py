"""A data folder on a file system of 16 MB, filled by a client (S4, R5).

What does not fit is refused with KAFKA_STORAGE_ERROR, what was acknowledged is read, and once there is room the
broker goes on by itself.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from support.broker.broker_process import BrokerProcess
from support.wire.wire import Wire, batch_of, fetch_request, values_of

SIZE, LARGER = "16m", "32m"
PIECE = 400_000
FULL = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "flintmq-test", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("toolchain: mount, to make a small file system")
    if done.returncode:
        pytest.skip(f"toolchain: the right to mount a small file system ({done.stderr.strip()})")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def broker(small_disk: Path, tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = ("--set", "flint.rest.port=-1", "--set", "log.segment.delete.delay.ms=0")
    started = BrokerProcess(small_disk / "data", settings)
    # What it says must not be on the disk that is full.
    started.error_log = tmp_path / "stderr"
    started.start()
    try:
        yield started
    finally:
        started.close()


def fill(wire: Wire, topic: str) -> list[bytes]:
    """Write until nothing fits any more, not even a little; the values that were acknowledged."""
    acknowledged: list[bytes] = []
    for size in (PIECE, 3000, 10):
        while True:
            value = b"%d " % len(acknowledged) + bytes(size)
            code = wire.produce(topic, batch_of(value)).error_code
            if code:
                assert code == FULL
                break
            acknowledged.append(value)
    return acknowledged


def read(wire: Wire, topic: str, start: int, end: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while start + len(found) < end:
        response = wire.fetch(fetch_request(topic, {0: start + len(found)}, partition_max_bytes=1 << 20))
        found += values_of(response)[0]
    return found


def delete_records(wire: Wire, topic: str, offset: int) -> ErrorCode:
    response = wire.ask(
        DeleteRecordsRequest(
            timeout_ms=10_000,
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
                    ],
                )
            ],
        ),
        2,
    )
    assert isinstance(response, DeleteRecordsResponse)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def create(wire: Wire, topic: str) -> ErrorCode:
    response = wire.ask(
        CreateTopicsRequest(
            timeout_ms=10_000,
            topics=[CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=-1)],
        ),
        7,
    )
    assert isinstance(response, CreateTopicsResponse)
    return ErrorCode(response.topics[0].error_code)


def test_a_full_disk_costs_what_does_not_fit_and_deleting_records_makes_room(broker: BrokerProcess) -> None:
    with Wire(broker.address) as wire:
        wire.create_topic("t", segment_bytes=str(1 << 20))
        wire.create_topic("durable", flush_messages="1")
        acknowledged = fill(wire, "t")
        assert wire.produce("durable", batch_of(b"x")).error_code == FULL
        assert read(wire, "t", 0, len(acknowledged)) == acknowledged
        assert delete_records(wire, "t", 20) is ErrorCode.NONE
        written = wire.produce("t", batch_of(b"fits again"))
        assert (written.error_code, written.base_offset) == (0, len(acknowledged))
        assert wire.produce("durable", batch_of(b"x")).base_offset == 0
        assert read(wire, "t", 20, len(acknowledged) + 1) == [*acknowledged[20:], b"fits again"]
    assert "offline" not in broker.errors


def test_a_topic_made_on_a_full_disk_takes_records_once_there_is_room(broker: BrokerProcess) -> None:
    with Wire(broker.address) as wire:
        wire.create_topic("t", segment_bytes=str(1 << 20))
        fill(wire, "t")
        # What fits nowhere is refused; whether the few bytes of the topic itself fit is up to the disk.
        if create(wire, "new") is ErrorCode.NONE:
            assert wire.produce("new", batch_of(bytes(PIECE))).error_code == FULL
        assert delete_records(wire, "t", 20) is ErrorCode.NONE
        assert create(wire, "new") in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        assert wire.produce("new", batch_of(b"x")).base_offset == 0


def test_a_full_disk_that_grows_is_used_at_once(broker: BrokerProcess, small_disk: Path) -> None:
    with Wire(broker.address) as wire:
        wire.create_topic("t", segment_bytes=str(1 << 20))
        acknowledged = fill(wire, "t")
        subprocess.run(["mount", "-o", f"remount,size={LARGER}", str(small_disk)], check=True)
        more = fill(wire, "t")
        assert len(more) > 10
        assert read(wire, "t", 0, len(acknowledged) + len(more)) == acknowledged + more


def test_what_was_acknowledged_on_a_full_disk_survives_the_process(
    broker: BrokerProcess, small_disk: Path
) -> None:
    with Wire(broker.address) as wire:
        wire.create_topic("t", segment_bytes=str(1 << 20))
        acknowledged = fill(wire, "t")
    broker.kill()
    subprocess.run(["mount", "-o", f"remount,size={LARGER}", str(small_disk)], check=True)
    broker.start()
    with Wire(broker.address) as wire:
        assert read(wire, "t", 0, len(acknowledged)) == acknowledged


def test_a_stop_on_a_full_disk_loses_nothing(broker: BrokerProcess, small_disk: Path) -> None:
    with Wire(broker.address) as wire:
        wire.create_topic("t", segment_bytes=str(1 << 20))
        acknowledged = fill(wire, "t")
    broker.stop()
    subprocess.run(["mount", "-o", f"remount,size={LARGER}", str(small_disk)], check=True)
    broker.start()
    with Wire(broker.address) as wire:
        assert read(wire, "t", 0, len(acknowledged)) == acknowledged
        assert wire.produce("t", batch_of(b"next")).base_offset == len(acknowledged)


def test_deleting_a_topic_makes_room(broker: BrokerProcess, small_disk: Path) -> None:
    with Wire(broker.address) as wire:
        wire.create_topic("kept")
        wire.create_topic("large", segment_bytes=str(1 << 20))
        fill(wire, "large")
        assert wire.produce("kept", batch_of(bytes(PIECE))).error_code == FULL
        wire.ask(
            DeleteTopicsRequest(
                topics=[DeleteTopicsRequest.DeleteTopicState(name="large")], timeout_ms=10_000
            ),
            6,
        )
        # The files go in the background.
        for _ in range(10_000):
            if wire.metadata("kept").topics and not any(
                "large" in name for name in os.listdir(broker.data_dir)
            ):
                break
        assert wire.produce("kept", batch_of(bytes(PIECE))).error_code == 0


def test_the_metadata_journal_on_a_full_disk_fails_cleanly(broker: BrokerProcess, small_disk: Path) -> None:
    """A change is refused or the broker stops and says why; what was acknowledged is there after the next start."""
    with Wire(broker.address) as wire:
        wire.create_topic("t", segment_bytes=str(1 << 20))
        acknowledged = fill(wire, "t")
        done = -1
        try:
            for number in range(2000):
                if alter(wire, "t", str(1_000_000 + number)):
                    break
                done = number
        except (EOFError, ConnectionResetError, BrokenPipeError):
            assert broker.wait() != 0
            assert "No space left on device" in broker.errors
    assert 0 <= done < 1999, "the journal never found the disk full"
    if broker.is_running:
        broker.kill()
    subprocess.run(["mount", "-o", f"remount,size={LARGER}", str(small_disk)], check=True)
    broker.start()
    with Wire(broker.address) as wire:
        assert read(wire, "t", 0, len(acknowledged)) == acknowledged
        assert alter(wire, "t", "1000") is ErrorCode.NONE


def alter(wire: Wire, topic: str, value: str) -> ErrorCode:
    config = IncrementalAlterConfigsRequest.AlterableConfig(
        name="retention.ms", config_operation=0, value=value
    )
    response = wire.ask(
        IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=2, resource_name=topic, configs=[config]
                )
            ]
        ),
        1,
    )
    assert isinstance(response, IncrementalAlterConfigsResponse)
    return ErrorCode(response.responses[0].error_code)
