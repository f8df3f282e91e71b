from __future__ import annotations

from collections.abc import Iterable

import pytest

from flintmq.client.errors import ConnectionLost
from flintmq.client.partitioner import partition_of_key
from flintmq.client.producer import ALL, LEADER, NONE, Delivery, Producer
from flintmq.errors import ErrorCode, ProtocolError, RequestError
from flintmq.protocol.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    ProduceRequest,
    ProduceResponse,
)
from flintmq.records.batch import read_header
from flintmq.records.compression import Codec
from flintmq.records.record import records_of
from support.broker.scripted_broker import ScriptedBroker, TestClock, metadata, scripted_client

Step = ErrorCode | OSError


class Log:
    """The scripted broker's side: what it was sent, and what it says to each request."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self.steps = list(steps)
        self.values: dict[int, list[bytes | None]] = {}
        self.sequences: list[tuple[int, int]] = []
        """Partition and base sequence of each batch received."""
        self.requests: list[ProduceRequest] = []
        self.answers_for: int | None = None
        """The partition it talks about instead of the one it was asked for."""

    def produce(self, request: ProduceRequest) -> ProduceResponse | OSError | None:
        self.requests.append(request)
        step = self.steps.pop(0) if self.steps else ErrorCode.NONE
        answers = []
        for one in request.topic_data[0].partition_data:
            batch = bytes(one.records or b"")
            self.sequences.append((one.index, read_header(batch).base_sequence))
            stored = self.values.setdefault(one.index, [])
            base = len(stored)
            if step is ErrorCode.NONE:
                stored += [record.value for record in records_of(batch, limit=1 << 20)]
            code = step if isinstance(step, ErrorCode) else ErrorCode.NONE
            answers.append(
                ProduceResponse.PartitionProduceResponse(
                    index=one.index if self.answers_for is None else self.answers_for,
                    error_code=code,
                    base_offset=base,
                )
            )
        if isinstance(step, OSError):
            return step
        topic = request.topic_data[0]
        answered = ProduceResponse.TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=answers
        )
        return None if request.acks == 0 else ProduceResponse(responses=[answered])


def producing(log: Log, partitions: int = 1, *, acks: int = ALL, **options: int) -> Producer:
    broker = ScriptedBroker(
        {
            MetadataRequest: metadata(partitions),
            InitProducerIdRequest: lambda _: InitProducerIdResponse(producer_id=7, producer_epoch=0),
            ProduceRequest: log.produce,
        }
    )
    client = scripted_client(broker, TestClock())
    return Producer(client, client.topic("t"), acks=acks, codec=Codec.GZIP, **options)


def test_records_arrive_in_order_with_ascending_sequences() -> None:
    log = Log()
    producer = producing(log, batch_bytes=400)
    for number in range(30):
        producer.send(b"%d" % number)
    producer.flush()
    assert log.values == {0: [b"%d" % number for number in range(30)]}
    starts = [sequence for _, sequence in log.sequences]
    assert starts[0] == 0
    assert len(starts) > 2
    assert starts == [delivery.base_offset for delivery in producer.delivered]


def test_a_key_decides_the_partition_and_an_explicit_one_overrules_it() -> None:
    log = Log()
    producer = producing(log, 5)
    producer.send(b"by key", key=b"k")
    producer.send(b"by hand", key=b"k", partition=(partition_of_key(b"k", 5) + 1) % 5)
    producer.flush()
    assert log.values[partition_of_key(b"k", 5)] == [b"by key"]
    assert len(log.values) == 2
    with pytest.raises(RequestError, match="no partition 5"):
        producer.send(b"", partition=5)


def test_records_without_a_key_change_partition_after_a_batch() -> None:
    log = Log()
    producer = producing(log, 3, batch_bytes=300, first_partition=1)
    for number in range(12):
        producer.send(b"%d" % number)
    producer.flush()
    assert {partition: len(values) for partition, values in log.values.items()} == {1: 6, 2: 6}


@pytest.mark.parametrize("step", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ConnectionResetError(104, "reset")])
def test_a_failure_that_may_pass_sends_the_same_batch_again(step: Step) -> None:
    """KIP-98: the sequence stays, so the broker recognises a batch that it has already."""
    log = Log([step])
    producer = producing(log)
    producer.send(b"v")
    producer.flush()
    assert log.sequences == [(0, 0), (0, 0)]
    assert log.values == {0: [b"v"]}
    assert producer.delivered == [Delivery(0, 0, 1)]


def test_a_coordinator_that_is_still_loading_is_asked_again_for_a_producer_id() -> None:
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
    log = Log()
    broker = ScriptedBroker(
        {
            MetadataRequest: metadata(),
            InitProducerIdRequest: lambda _: InitProducerIdResponse(
                error_code=codes.pop(0), producer_id=7, producer_epoch=0
            ),
            ProduceRequest: log.produce,
        }
    )
    client = scripted_client(broker, TestClock())
    producer = Producer(client, client.topic("t"))
    producer.send(b"v")
    producer.flush()
    assert log.sequences == [(0, 0)]


def test_a_duplicate_counts_as_written() -> None:
    log = Log([ErrorCode.DUPLICATE_SEQUENCE_NUMBER])
    producer = producing(log)
    producer.send(b"v")
    producer.flush()
    assert [delivery.record_count for delivery in producer.delivered] == [1]


@pytest.mark.parametrize("step", [ErrorCode.REQUEST_TIMED_OUT, ConnectionResetError(104, "reset")])
def test_without_idempotence_a_batch_that_may_have_arrived_is_not_sent_again(step: Step) -> None:
    log = Log([step])
    producer = producing(log, acks=LEADER)
    producer.send(b"v")
    with pytest.raises((ConnectionLost, RequestError)):
        producer.flush()
    assert log.sequences == [(0, -1)]


def test_an_error_that_will_not_pass_is_raised_with_the_partition() -> None:
    producer = producing(Log([ErrorCode.INVALID_TIMESTAMP]))
    producer.send(b"v")
    with pytest.raises(RequestError, match="t-0: INVALID_TIMESTAMP") as raised:
        producer.flush()
    assert raised.value.code is ErrorCode.INVALID_TIMESTAMP


def test_a_batch_too_large_for_the_topic_is_sent_in_halves() -> None:
    log = Log([ErrorCode.MESSAGE_TOO_LARGE])
    producer = producing(log)
    for number in range(5):
        producer.send(b"%d" % number)
    producer.flush()
    assert log.values == {0: [b"0", b"1", b"2", b"3", b"4"]}
    assert log.sequences == [(0, 0), (0, 0), (0, 2)]


def test_a_single_record_too_large_is_an_error() -> None:
    producer = producing(Log([ErrorCode.MESSAGE_TOO_LARGE]))
    producer.send(b"v")
    with pytest.raises(RequestError, match=r"max\.message\.bytes"):
        producer.flush()


def test_an_answer_about_other_partitions_is_refused_rather_than_waited_on_for_ever() -> None:
    log = Log()
    producer = producing(log)
    producer.send(b"v")
    log.answers_for = 1
    with pytest.raises(ProtocolError, match="answers for others"):
        producer.flush()


def test_acks_0_waits_for_nothing() -> None:
    log = Log()
    producer = producing(log, acks=NONE)
    producer.send(b"v")
    producer.flush()
    assert log.values == {0: [b"v"]}
    assert producer.delivered == [Delivery(0, -1, 1)]
