"""Requests that are well formed and enormous: as many entries as are taken, and one more (R5, B12).

Whatever the API, such a request costs memory and time in proportion to its entries, not to its bytes. It is
answered, entry by entry, or its connection is closed; others do not notice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from flintmq.broker.apis import APIS, Api
from flintmq.errors import ErrorCode
from flintmq.metadata.config_changes import ResourceType
from flintmq.protocol import messages
from flintmq.protocol.codegen.schema import Field
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    MetadataRequest,
    MetadataResponse,
)
from flintmq.protocol.primitives import REQUEST_ENTRIES_MAX
from support.broker.broker_process import BrokerProcess
from support.broker.hostile import watched
from support.wire.wire import Wire

TOPIC = "named-over-and-over"
NAMES = ("name", "topic", "topic_name", "resource_name")
DISTINCT, REPEATED = "distinct entries", "one entry, repeated"


def arrays_of(
    cls: type[Message], name: str, version: int, path: tuple[Field, ...] = ()
) -> Iterator[tuple[Field, ...]]:
    """The way to every array of a message, through the arrays around it."""
    for field in cls.schema.structs[name]:
        if field.present(version) and not field.is_tagged(version):
            if field.array:
                yield (*path, field)
            if field.struct:
                yield from arrays_of(cls, field.struct, version, (*path, field))


WITH_ARRAYS = [
    api
    for api in APIS
    if any(arrays_of(request := messages.request_of(api.key), request.__name__, api.versions[1]))
]


@pytest.fixture(autouse=True)
def topic(broker: BrokerProcess) -> None:
    """There for every test, though one of them deletes it."""
    with Wire(broker.address) as wire:
        if wire.metadata(TOPIC).topics[0].error_code:
            wire.create_topic(TOPIC, partitions=4)


@pytest.mark.parametrize("entries", [DISTINCT, REPEATED])
@pytest.mark.parametrize("api", WITH_ARRAYS, ids=lambda api: api.name)
def test_the_largest_request_of_each_kind_is_answered_and_hurts_nobody(
    broker: BrokerProcess, api: Api, entries: str
) -> None:
    request = messages.request_of(api.key)
    version = api.versions[1]
    with watched(broker):
        for path in arrays_of(request, request.__name__, version):
            # Room for the arrays around it, which have one element each.
            message = enlarged(request, version, path, REQUEST_ENTRIES_MAX - 10, repeated=entries is REPEATED)
            with Wire(broker.address) as wire:
                wire.sock.sendall(wire.frame(message, version, 1))
                assert len(wire.receive_frame()) > 4
    assert "Traceback" not in broker.errors


@pytest.mark.parametrize("api", WITH_ARRAYS, ids=lambda api: api.name)
def test_a_request_with_more_entries_closes_its_connection(broker: BrokerProcess, api: Api) -> None:
    request = messages.request_of(api.key)
    with watched(broker):
        for path in arrays_of(request, request.__name__, api.versions[1]):
            message = enlarged(request, api.versions[1], path, REQUEST_ENTRIES_MAX + 1, repeated=True)
            with Wire(broker.address) as wire:
                wire.sock.sendall(wire.frame(message, api.versions[1], 1))
                assert wire.is_closed_by_the_broker()


def enlarged(
    cls: type[Message], version: int, path: tuple[Field, ...], size: int, *, repeated: bool
) -> Message:
    message = cls()
    at: Any = message
    fill(at, cls.schema.structs[cls.__name__], version, 0)
    for depth, field in enumerate(path):
        fields = cls.schema.structs[field.struct] if field.struct else ()
        many = size if depth == len(path) - 1 else 1
        elements = []
        for number in range(many if field.array and not repeated else 1):
            if field.struct:
                element: Any = getattr(cls, field.struct)()
                fill(element, fields, version, number if many > 1 else 0)
            else:
                element = value_of(field, number)
            elements.append(element)
        if repeated and field.array:
            elements *= many
        setattr(at, field.name, elements if field.array else elements[0])
        at = elements[0]
    return message


def fill(struct: Any, fields: tuple[Field, ...], version: int, number: int) -> None:
    """Names and partitions that a request of its kind would have."""
    for field in fields:
        if not field.present(version) or field.array:
            continue
        if field.name == "acks":
            struct.acks = 1
        elif field.kind == "string" and field.name in NAMES:
            setattr(struct, field.name, f"{TOPIC}-{number}" if number else TOPIC)
        elif field.name == "resource_type":
            struct.resource_type = ResourceType.TOPIC
        elif field.kind == "int32" and field.name in ("partition", "partition_index", "index"):
            setattr(struct, field.name, number)


def value_of(field: Field, number: int) -> Any:
    if field.kind == "string":
        return f"{TOPIC}-{number}" if number else TOPIC
    return (
        number.to_bytes(16, "big")
        if field.kind == "uuid"
        else number % 128
        if field.kind == "int8"
        else number
    )


# ---- small requests with large answers


def test_a_topic_that_is_named_often_is_told_once(broker: BrokerProcess) -> None:
    with watched(broker), Wire(broker.address) as wire:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)] * 49_000,
            allow_auto_topic_creation=False,
        )
        response = wire.ask(request, 12)
        assert isinstance(response, MetadataResponse)
        assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [(TOPIC, 4)]


def test_an_answer_has_a_bounded_number_of_settings(broker: BrokerProcess) -> None:
    """Two connections ask for the same topic's settings four thousand times each, with all there is to know."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=ResourceType.TOPIC, resource_name=TOPIC, configuration_keys=None
            )
        ]
        * 4000,
        include_synonyms=True,
        include_documentation=True,
    )
    with watched(broker):
        wires = [Wire(broker.address, timeout_s=100) for _ in range(2)]
        for wire in wires:
            wire.send(request, 4)
        for wire in wires:
            _, response = wire.receive()
            assert isinstance(response, DescribeConfigsResponse)
            assert len(response.results) == 4000
            assert response.results[0].error_code == 0
            assert response.results[-1].error_code == ErrorCode.INVALID_REQUEST
            assert sum(len(one.configs) for one in response.results) < 110_000
            wire.sock.close()


def test_long_names_are_not_told_again_and_again(broker: BrokerProcess) -> None:
    """A name of 32 KB and 40,000 partitions: an answer that repeated it would have more than a gigabyte."""
    name = "n" * 32_000
    asked = [
        messages.ElectLeadersRequest(
            topic_partitions=[
                messages.ElectLeadersRequest.TopicPartitions(topic=name, partitions=list(range(40_000)))
            ]
        ),
        messages.AlterPartitionReassignmentsRequest(
            topics=[
                messages.AlterPartitionReassignmentsRequest.ReassignableTopic(
                    name=name,
                    partitions=[
                        messages.AlterPartitionReassignmentsRequest.ReassignablePartition(
                            partition_index=index, replicas=[0]
                        )
                        for index in range(20_000)
                    ],
                )
            ]
        ),
        messages.DescribeProducersRequest(
            topics=[
                messages.DescribeProducersRequest.TopicRequest(
                    name=name, partition_indexes=list(range(40_000))
                )
            ]
        ),
    ]
    with watched(broker), Wire(broker.address) as wire:
        for request in asked:
            wire.sock.sendall(wire.frame(request, type(request).versions[1], 1))
            assert len(wire.receive_frame()) < 30_000_000


def test_a_reason_is_cut_to_what_an_answer_can_hold(broker: BrokerProcess) -> None:
    request = messages.AlterPartitionReassignmentsRequest(
        topics=[
            messages.AlterPartitionReassignmentsRequest.ReassignableTopic(
                name=TOPIC,
                partitions=[
                    messages.AlterPartitionReassignmentsRequest.ReassignablePartition(
                        partition_index=0, replicas=list(range(40_000))
                    )
                ],
            )
        ]
    )
    with watched(broker), Wire(broker.address) as wire:
        response = wire.ask(request, 0)
        assert isinstance(response, messages.AlterPartitionReassignmentsResponse)
        (told,) = response.responses[0].partitions
        assert told.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert told.error_message is not None
        assert len(told.error_message) < 1000


def test_a_frame_may_be_large_only_if_it_writes_records(own_broker: BrokerProcess) -> None:
    """`flint.request.max.bytes`: refused as soon as its kind is known, not when it is there.

    On a broker of its own: lines about bad clients are few, and other tests have used them up.
    """
    for api in APIS:
        begin = struct.pack(">ihhih", 17 << 20, api.key, api.versions[1], 1, -1)
        with Wire(own_broker.address) as wire:
            wire.sock.sendall(begin)
            if api.key == 0:
                wire.sock.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    wire.is_closed_by_the_broker()
            else:
                assert wire.is_closed_by_the_broker(), api.name
    assert "flint.request.max.bytes" in own_broker.errors
