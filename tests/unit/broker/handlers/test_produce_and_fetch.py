"""Produce and Fetch between dispatch and the log: nothing of a frame is used after its time, nobody is forgotten."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flintmq.broker.dispatch import Dispatcher
from flintmq.broker.handlers import fetch as handler
from flintmq.broker.request import ClientSession, Request, ResponseBuffers
from flintmq.errors import ErrorCode
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.fetch import encode_response
from flintmq.protocol.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from flintmq.storage import reader
from flintmq.storage.visibility import Isolation
from support.broker.single_broker import SingleBroker
from support.cli.manual import ManualExecutor
from support.wire.wire import batch_of, fetch_request, produce_request, records_in, values_of

PRODUCE_VERSION, FETCH_VERSION = 9, 12
StartBroker = Callable[..., SingleBroker]


class Client:
    """A connection whose frames all arrive in one buffer, wiped as soon as dispatch returns."""

    def __init__(self, broker: SingleBroker) -> None:
        self.broker = broker
        self.executor = ManualExecutor()
        self.dispatcher = Dispatcher(replace(broker.services, executor=self.executor))
        self.session = ClientSession(listener="PLAINTEXT", peer="test", local_host="127.0.0.1", local_port=1)
        self.answers: list[Request] = []
        self.refusals: list[str] = []

    def send_response(self, request: Request) -> None:
        self.answers.append(request)

    def refuse(self, reason: str) -> None:
        self.refusals.append(reason)

    def authenticated(self) -> None:
        """Nothing is limited here."""

    def throttle(self, delay_s: float) -> None:
        """No client here has quotas."""

    def reject(self, request: Request, response: ResponseBuffers, reason: str, delay_s: float) -> None:
        self.refuse(reason)

    def send(self, message: Message, version: int) -> Request | None:
        tags = b"\0" if version >= type(message).flexible else b""
        header = struct.pack(">hhih", message.api_key, version, 1, -1)
        frame = bytearray(header + tags + encode(message, version))

        async def dispatch() -> Request | None:
            return self.dispatcher.dispatch(self, memoryview(frame))

        request = self.broker.loop.run_until_complete(dispatch())
        frame[:] = b"\xff" * len(frame)
        return request


def produced(request: Request | None) -> list[tuple[int, int, int]]:
    """Partition, error and offset of every answer."""
    assert request is not None
    assert request.response is not None
    data = b"".join(buffer for buffer in request.response if isinstance(buffer, bytes | bytearray))
    response, _ = decode(ProduceResponse, data, PRODUCE_VERSION, 9)
    return [
        (one.index, one.error_code, one.base_offset)
        for topic in response.responses
        for one in topic.partition_responses
    ]


def fetched(request: Request | None) -> FetchResponse:
    assert request is not None
    assert request.response is not None
    data = b"".join(
        bytes(buffer) if isinstance(buffer, bytes | bytearray | memoryview) else buffer.read()
        for buffer in request.response
    )
    return decode(FetchResponse, data, FETCH_VERSION, 9)[0]


def stored(broker: SingleBroker, topic: str, index: int = 0) -> list[bytes | None]:
    found = reader.read(broker.partition(topic, index).log, 0, 1 << 20, Isolation.LOG_END, at_least_one=True)
    return [] if found is None else [record.value for record in records_in(found.read())]


def to_partitions(topic: str, values: dict[int, bytes], acks: int = -1) -> ProduceRequest:
    request = produce_request(topic, b"", acks=acks)
    request.topic_data[0].partition_data = [
        ProduceRequest.PartitionProduceData(index=index, records=batch_of(value))
        for index, value in values.items()
    ]
    return request


def test_records_are_in_the_log_when_dispatch_returns(broker: SingleBroker) -> None:
    broker.create("t", 2)
    client = Client(broker)
    request = client.send(to_partitions("t", {0: b"zero", 1: b"one", 7: b"nowhere"}), PRODUCE_VERSION)
    assert produced(request) == [(0, 0, 0), (1, 0, 0), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert (stored(broker, "t"), stored(broker, "t", 1)) == ([b"zero"], [b"one"])


def test_batches_that_are_opened_in_a_thread_outlive_their_frame(broker: SingleBroker) -> None:
    broker.create("t", 2, compression_type="gzip")
    client = Client(broker)
    request = client.send(to_partitions("t", {0: b"zero" * 100, 1: b"one" * 100}), PRODUCE_VERSION)
    assert request is not None
    assert request.response is None
    assert request.barrier
    for _ in range(2):
        broker.loop.run_until_idle()
        client.executor.step()
    broker.loop.run_until_idle()
    assert client.answers == [request]
    assert produced(request) == [(0, 0, 0), (1, 0, 0)]
    assert (stored(broker, "t"), stored(broker, "t", 1)) == ([b"zero" * 100], [b"one" * 100])


def test_nothing_is_answered_before_every_batch_has_its_answer(broker: SingleBroker) -> None:
    """The first is durable while the second still waits to be opened."""
    broker.create("t", 2, compression_type="gzip", flush_messages="1")
    client = Client(broker)
    request = client.send(to_partitions("t", {0: b"zero", 1: b"one"}), PRODUCE_VERSION)
    broker.loop.run_until_idle()
    client.executor.step()
    broker.loop.run_until_idle()
    assert broker.partition("t").is_visible(0)
    assert client.answers == []
    client.executor.step()
    broker.loop.run_until_idle()
    assert client.answers == [request]
    assert produced(request) == [(0, 0, 0), (1, 0, 0)]


def test_a_topic_deleted_while_its_batch_is_opened_takes_nothing(broker: SingleBroker) -> None:
    broker.create("t", compression_type="gzip")
    client = Client(broker)
    request = client.send(to_partitions("t", {0: b"zero"}), PRODUCE_VERSION)
    broker.loop.run_until_idle()
    topics = broker.services.topics
    broker.loop.run_until_complete(topics.delete(topics.find("t")))
    client.executor.step()
    broker.loop.run_until_idle()
    assert produced(request) == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_an_acknowledgement_that_takes_too_long_is_a_timeout_and_comes_once(broker: SingleBroker) -> None:
    broker.create("t", 2, flush_messages="1")
    client, flushes = Client(broker), ManualExecutor()
    broker.partition("t", 1)._flusher._executor = flushes
    message = to_partitions("t", {0: b"zero", 1: b"one"})
    message.timeout_ms = 5000
    request = client.send(message, PRODUCE_VERSION)
    broker.loop.run_until_idle()
    assert client.answers == []
    broker.loop.advance(5.1)
    assert client.answers == [request]
    assert produced(request) == [(0, 0, 0), (1, ErrorCode.REQUEST_TIMED_OUT, -1)]
    flushes.step()
    broker.loop.run_until_idle()
    assert len(client.answers) == 1


def test_a_failed_fsync_is_answered_with_a_storage_error(broker: SingleBroker) -> None:
    broker.create("t", flush_messages="1")
    client = Client(broker)
    broker.disk.fail("sync")
    request = client.send(to_partitions("t", {0: b"zero"}), PRODUCE_VERSION)
    broker.loop.run_until_idle()
    assert produced(request) == [(0, ErrorCode.KAFKA_STORAGE_ERROR, -1)]


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acknowledgements_are_refused(broker: SingleBroker, acks: int) -> None:
    broker.create("t")
    request = Client(broker).send(to_partitions("t", {0: b"x"}, acks), PRODUCE_VERSION)
    assert produced(request) == [(0, ErrorCode.INVALID_REQUIRED_ACKS, -1)]
    assert stored(broker, "t") == []


def test_min_insync_replicas_counts_up_to_the_replication_factor(broker: SingleBroker) -> None:
    """KIP-966: Kafka 4 accepts acks=all where the only replica is in sync, whatever min.insync.replicas says."""
    broker.create("t", min_insync_replicas="2")
    assert produced(Client(broker).send(to_partitions("t", {0: b"x"}, -1), PRODUCE_VERSION)) == [(0, 0, 0)]


def test_an_error_without_acknowledgement_refuses_the_connection(broker: SingleBroker) -> None:
    broker.create("t")
    client = Client(broker)
    request = client.send(to_partitions("t", {0: b"x"}, 0), PRODUCE_VERSION)
    assert request is not None
    assert (request.response, client.refusals) == ([], [])
    client.send(to_partitions("t", {7: b"x"}, 0), PRODUCE_VERSION)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in client.refusals[0]


# ---- fetch


def long_poll(topic: str, offsets: dict[int, int], min_bytes: int = 1) -> FetchRequest:
    return fetch_request(topic, offsets, max_wait_ms=30_000, min_bytes=min_bytes)


def readers(broker: SingleBroker, topic: str, count: int) -> list[int]:
    return [len(broker.partition(topic, index)._readers) for index in range(count)]


def test_a_parked_fetch_leaves_nothing_behind_however_it_ends(broker: SingleBroker) -> None:
    broker.create("t", 2)
    client = Client(broker)
    for end in ("append", "cancel", "expire", "time"):
        high = broker.partition("t", 1).log.high_watermark
        request = client.send(long_poll("t", {0: 0, 1: high}), FETCH_VERSION)
        assert request is not None
        assert request.delayed is not None
        assert readers(broker, "t", 2) == [1, 1]
        if end == "append":
            client.send(to_partitions("t", {1: b"x"}), PRODUCE_VERSION)
            broker.loop.run_until_idle()
        elif end == "cancel":
            request.delayed.cancel()
        elif end == "expire":
            request.delayed.expire()
        else:
            broker.loop.advance(30.1)
        assert readers(broker, "t", 2) == [0, 0]
        assert request.delayed is None
        assert (request in client.answers) is (end != "cancel")
        broker.loop.advance(60)
        assert client.answers.count(request) == (end != "cancel")


@pytest.mark.plain
def test_a_fetch_that_cannot_be_answered_hurts_no_other(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("t")
    broken, fine = Client(broker), Client(broker)
    broken.send(long_poll("t", {0: 0}), FETCH_VERSION)
    second = fine.send(long_poll("t", {0: 0}), FETCH_VERSION)
    failures = iter([OSError("a log file gave 3 of 5 bytes")])

    def encode_all_but_the_first(*args: Any, **options: Any) -> Any:
        for failure in failures:
            raise failure
        return encode_response(*args, **options)

    monkeypatch.setattr(handler, "encode_response", encode_all_but_the_first)
    fine.send(to_partitions("t", {0: b"x"}), PRODUCE_VERSION)
    broker.loop.run_until_idle()
    assert (fine.answers, broken.answers) == ([second], [])
    assert "3 of 5 bytes" in broken.refusals[0]
    assert readers(broker, "t", 1) == [0]


def test_min_bytes_counts_what_several_partitions_give(broker: SingleBroker) -> None:
    broker.create("t", 2)
    client = Client(broker)
    size = len(batch_of(b"x"))
    request = client.send(long_poll("t", {0: 0, 1: 0}, min_bytes=2 * size), FETCH_VERSION)
    client.send(to_partitions("t", {0: b"x"}), PRODUCE_VERSION)
    broker.loop.run_until_idle()
    assert client.answers == []
    client.send(to_partitions("t", {1: b"x"}), PRODUCE_VERSION)
    broker.loop.run_until_idle()
    assert client.answers == [request]
    assert values_of(fetched(request)) == {0: [b"x"], 1: [b"x"]}


def test_epochs_that_the_client_should_not_have_are_refused(broker: SingleBroker) -> None:
    """KIP-320."""
    broker.create("t")
    client = Client(broker)
    for epoch, code in ((5, ErrorCode.UNKNOWN_LEADER_EPOCH), (0, ErrorCode.NONE), (-1, ErrorCode.NONE)):
        message = fetch_request("t", {0: 0})
        message.topics[0].partitions[0].current_leader_epoch = epoch
        assert fetched(client.send(message, FETCH_VERSION)).responses[0].partitions[0].error_code == code


def test_the_last_epoch_of_an_empty_log_does_not_diverge(broker: SingleBroker) -> None:
    """KIP-595: the leader's own epoch ends where the log ends."""
    broker.create("t")
    message = fetch_request("t", {0: 0})
    message.topics[0].partitions[0].last_fetched_epoch = 0
    (partition,) = fetched(Client(broker).send(message, FETCH_VERSION)).responses[0].partitions
    assert (partition.error_code, partition.diverging_epoch.epoch) == (0, -1)
