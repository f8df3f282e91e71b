"""How a worker fetches a range: sizes, read-ahead, what it waits out, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")

import pyarrow as pa

from flintmq.arrow.scan import range_reader
from flintmq.arrow.scan.data_loss import DataLoss
from flintmq.arrow.scan.limits import ScanLimits
from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import parse
from flintmq.errors import CorruptionError, ErrorCode, RequestError
from flintmq.protocol.messages import FetchRequest, FetchResponse, MetadataRequest
from flintmq.records.record import build_batch
from support.broker.scripted_broker import TOPIC_ID, ScriptedBroker, TestClock, metadata, scripted_client

LOG = [
    build_batch([(None, b"%d" % (base + at), 0, ()) for at in range(10)], base_offset=base)
    for base in range(0, 1000, 10)
]
SIZE = len(LOG[-1])

Answer = Callable[[FetchRequest], Any]


def fetched(records: bytes, error: ErrorCode = ErrorCode.NONE) -> FetchResponse:
    partition = FetchResponse.PartitionData(
        partition_index=0, error_code=error, records=records, high_watermark=1000
    )
    topic = FetchResponse.FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[partition])
    return FetchResponse(responses=[topic])


def from_log(request: FetchRequest) -> FetchResponse:
    wanted = request.topics[0].partitions[0]
    first = wanted.fetch_offset // 10
    return fetched(b"".join(LOG[first : first + max(1, wanted.partition_max_bytes // SIZE)]))


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, clock: TestClock) -> ScriptedBroker:
    made = ScriptedBroker({MetadataRequest: metadata(), FetchRequest: from_log})
    monkeypatch.setattr(range_reader, "client_of", lambda options: scripted_client(made, clock))
    return made


def batches(start: int, end: int, limits: ScanLimits | None = None, **options: str) -> Any:
    named = {name.replace("__", "."): value for name, value in options.items()}
    parsed = parse({"kafka.bootstrap.servers": "bootstrap", "subscribe": "t", **named})
    parsed = replace(parsed, limits=limits or parsed.limits)
    return range_reader.read_range(OffsetRange("t", TOPIC_ID, 0, start, end), ("offset",), parsed)


def offsets(found: Any) -> list[int]:
    return [offset for batch in found for offset in batch["offset"].to_pylist()]


def asked(broker: ScriptedBroker) -> list[tuple[int, int]]:
    """Where each fetch began, and how many bytes it allowed."""
    places = [one.topics[0].partitions[0] for one in broker.requests if isinstance(one, FetchRequest)]
    return [(place.fetch_offset, place.partition_max_bytes) for place in places]


def failing_first(broker: ScriptedBroker, *failures: Any) -> None:
    left = list(failures)

    def answer(request: FetchRequest) -> Any:
        return left.pop(0) if left else from_log(request)

    broker.answers[FetchRequest] = answer


def test_a_range_begins_and_ends_inside_batches(broker: ScriptedBroker) -> None:
    assert offsets(batches(13, 27)) == list(range(13, 27))


def test_the_next_fetch_is_on_its_way_before_the_last_is_decoded(broker: ScriptedBroker) -> None:
    found = batches(0, 1000, kafka__max__partition__fetch__bytes=str(20 * SIZE))
    next(found)
    assert [first for first, _ in asked(broker)] == [0, 200]
    assert len(offsets(found)) == 800


def test_the_last_fetch_asks_for_little_more_than_is_left(broker: ScriptedBroker) -> None:
    limits = ScanLimits(fetch_bytes_min=1, first_fetch_bytes=20 * SIZE)
    found = batches(0, 900, limits, kafka__max__partition__fetch__bytes=str(40 * SIZE))
    assert len(offsets(found)) == 900
    assert [first for first, _ in asked(broker)] == [0, 200, 600]
    last = asked(broker)[-1][1]
    assert 30 * SIZE <= last <= 32 * SIZE


def test_nothing_is_fetched_behind_the_end(broker: ScriptedBroker) -> None:
    offsets(batches(0, 5))
    assert len(asked(broker)) == 1


@pytest.mark.parametrize(
    "failure",
    [
        fetched(b"", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        fetched(b"", ErrorCode.KAFKA_STORAGE_ERROR),
        FetchResponse(error_code=ErrorCode.UNKNOWN_TOPIC_ID),
        ConnectionResetError(104, "Connection reset by peer"),
    ],
    ids=["another leader", "storage", "topic not known yet", "connection lost"],
)
def test_what_may_pass_is_waited_out(broker: ScriptedBroker, clock: TestClock, failure: Any) -> None:
    failing_first(broker, failure, failure)
    assert offsets(batches(0, 50)) == list(range(50))
    assert len(clock.slept) == 2


def test_what_does_not_pass_is_an_error(broker: ScriptedBroker) -> None:
    broker.answers[FetchRequest] = lambda _: fetched(b"", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(RequestError, match="t-0: TOPIC_AUTHORIZATION_FAILED"):
        next(batches(0, 50))
    broker.answers[FetchRequest] = lambda _: fetched(b"", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(RequestError, match="NOT_LEADER_OR_FOLLOWER"):
        next(batches(0, 50))


def test_a_topic_is_gone_when_metadata_says_so_again_and_again(broker: ScriptedBroker) -> None:
    failing_first(broker, fetched(b"", ErrorCode.UNKNOWN_TOPIC_ID))
    found = metadata()
    another = metadata(topic="another")
    answers = [found, another, another, found]
    broker.answers[MetadataRequest] = lambda request: (answers.pop(0) if len(answers) > 1 else answers[0])(
        request
    )
    assert offsets(batches(0, 50)) == list(range(50))
    broker.answers[MetadataRequest] = another
    with pytest.raises(
        DataLoss, match="t-0, offsets 0 to 49 cannot be read: the topic t is not there any more"
    ):
        next(batches(0, 50))


def test_answers_without_records_end_in_an_error(broker: ScriptedBroker) -> None:
    failing_first(broker, *[fetched(b"")] * 3)
    assert offsets(batches(0, 50)) == list(range(50))
    broker.answers[FetchRequest] = lambda _: fetched(b"")
    with pytest.raises(DataLoss, match="the broker has nothing there"):
        next(batches(0, 50))
    assert offsets(batches(0, 50, failOnDataLoss="false")) == []


@pytest.mark.parametrize(
    "data",
    [
        LOG[0][:-1],
        b"\xff" * 100,
        LOG[0][:-1] + b"\x00",
        LOG[0],
    ],
    ids=["cut", "noise", "wrong CRC", "an old batch"],
)
def test_bytes_that_make_no_sense_are_an_error_that_names_the_place(
    broker: ScriptedBroker, data: bytes
) -> None:
    broker.answers[FetchRequest] = lambda _: fetched(data)
    start = 10 if data == LOG[0] else 0
    with pytest.raises(CorruptionError, match="t-0: "):
        list(batches(start, 50))


def test_slices_are_bounded_by_rows_and_by_bytes() -> None:
    batch = pa.record_batch({"value": [b"x" * 100] * 50})

    def sizes(**limits: int) -> list[int]:
        return [one.num_rows for one in range_reader.bounded_slices(batch, ScanLimits(**limits))]

    assert sizes() == [50]
    assert sizes(batch_rows_max=20) == [20, 20, 10]
    assert sizes(batch_rows_max=20, batch_bytes_max=1100) == [10] * 5
    assert sizes(batch_bytes_max=1) == [1] * 50
    assert list(range_reader.bounded_slices(batch.slice(0, 0), ScanLimits())) == []
