"""The classes of messages, and the definitions that they are built from."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from flintmq.protocol import messages
from flintmq.protocol.codegen.schema import NOT_FLEXIBLE
from flintmq.protocol.messages import FetchResponse, MetadataRequest, MetadataResponse

ROOT = os.path.join(os.path.dirname(__file__), "..", "..", "..")
JAR = os.environ.get("KAFKA_CLIENTS_JAR") or os.path.expanduser(
    "~/.m2/repository/org/apache/kafka/kafka-clients/4.3.1/kafka-clients-4.3.1.jar"
)


def test_a_message_says_what_it_is() -> None:
    assert (MetadataRequest.api_key, MetadataRequest.kind) == (3, "request")
    assert (MetadataRequest.versions, MetadataRequest.flexible) == ((0, 13), 9)
    assert messages.SaslHandshakeRequest.flexible == NOT_FLEXIBLE
    assert messages.ConsumerProtocolSubscription.api_key == -1
    assert messages.ConsumerProtocolSubscription.kind == "data"


def test_messages_are_found_by_api_key() -> None:
    assert messages.request_of(3) is MetadataRequest
    assert messages.response_of(3) is MetadataResponse
    with pytest.raises(KeyError):
        messages.request_of(7)


def test_an_unknown_name_is_no_attribute() -> None:
    assert not hasattr(messages, "MetadataRequests")


def test_defaults_are_kafka_s() -> None:
    request = MetadataRequest()
    assert request.topics == []
    assert request.allow_auto_topic_creation is True
    partition = FetchResponse.PartitionData()
    assert (partition.last_stable_offset, partition.preferred_read_replica, partition.records) == (
        -1,
        -1,
        None,
    )
    assert partition.diverging_epoch == FetchResponse.EpochEndOffset(epoch=-1, end_offset=-1)
    assert messages.FetchRequest().max_bytes == 0x7FFFFFFF
    assert MetadataRequest.MetadataRequestTopic().topic_id == bytes(16)


def test_default_lists_and_structs_are_not_shared() -> None:
    assert MetadataRequest().topics is not MetadataRequest().topics
    one, other = FetchResponse.PartitionData(), FetchResponse.PartitionData()
    assert one.current_leader is not other.current_leader


def test_fields_are_given_by_name_and_no_others_exist() -> None:
    with pytest.raises(TypeError):
        MetadataRequest([])  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        MetadataRequest(topic=[])  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        MetadataRequest().topic = []  # type: ignore[attr-defined]


def test_equality_is_by_class_and_fields() -> None:
    assert MetadataRequest(topics=None) == MetadataRequest(topics=None)
    assert MetadataRequest(topics=None) != MetadataRequest()
    assert MetadataRequest() != MetadataResponse()


def test_a_message_prints_its_fields_and_clips_long_bytes() -> None:
    assert repr(MetadataRequest.MetadataRequestTopic(name="t")) == (
        f"MetadataRequest.MetadataRequestTopic(topic_id={bytes(16)!r}, name='t')"
    )
    assert "records=<100 bytes>" in repr(FetchResponse.PartitionData(records=bytes(100)))


def test_a_class_is_built_only_when_named() -> None:
    code = (
        "from flintmq.protocol import messages\n"
        "messages.MetadataRequest\n"
        "print([name for name in messages.names() if name in vars(messages)])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "['MetadataRequest']\n"


@pytest.mark.skipif(not os.path.exists(JAR), reason="toolchain: the kafka-clients jar was not found")
def test_the_committed_definitions_are_what_the_script_makes() -> None:
    spec = importlib.util.spec_from_file_location(
        "make", os.path.join(ROOT, "scripts", "make_definitions.py")
    )
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    found = script.read_messages([JAR])
    protocol = os.path.join(ROOT, "src", "flintmq", "protocol")
    for name, text in (
        ("codegen/definitions.txt", script.definitions(found)),
        ("messages.pyi", script.stub(found)),
    ):
        with open(os.path.join(protocol, name), encoding="utf-8") as file:
            assert file.read() == text, f"{name}: run scripts/make_definitions.py"
