"""Kafka's console consumer prints `__consumer_offsets` with its own formatters (issue: Kafka's record formats).

Needs `java` and the jars of a Kafka 4.3 distribution, from `$KAFKA_LIBS` or the suites' cache.
"""

from __future__ import annotations

import base64
import glob
import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from flintmq.client.assignors import encode_assignment, encode_subscription
from support.broker.broker_process import BrokerProcess
from support.cli.command import run

TOOL = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTERS = "org.apache.kafka.tools.consumer"
CACHED_LIBS = os.path.expanduser("~/.cache/flintmq-suites/kafka-*/lib")
TIMEOUT_S = 90


@pytest.fixture(scope="module")
def java() -> list[str]:
    command = shutil.which("java")
    libs = os.environ.get("KAFKA_LIBS") or next(iter(sorted(glob.glob(CACHED_LIBS), reverse=True)), None)
    if command is None or libs is None or not glob.glob(os.path.join(libs, "kafka-tools-*.jar")):
        pytest.skip(
            "toolchain: the console consumer was not asked, for want of java or Kafka's jars (KAFKA_LIBS)"
        )
    return [command, "-Xmx256m", "-XX:+UseSerialGC", "-cp", os.path.join(libs, "*"), TOOL]


def printed(java: list[str], broker: BrokerProcess, formatter: str) -> list[dict[str, Any]]:
    """What the formatter makes of the records of our own group; the tool has a group too."""
    done = subprocess.run(
        [
            *java,
            *("--bootstrap-server", broker.address, "--topic", "__consumer_offsets", "--from-beginning"),
            *("--formatter", f"{FORMATTERS}.{formatter}", "--timeout-ms", "5000"),
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    decoder = json.JSONDecoder()
    records, text = [], done.stdout.strip()
    # One object after the other, with nothing in between.
    while text:
        record, end = decoder.raw_decode(text)
        records.append(record)
        text = text[end:].lstrip()
    assert records, done.stderr
    return [record for record in records if record["key"]["data"]["group"] == "billing"]


@pytest.mark.timeout(240)
def test_kafka_s_formatters_read_what_groups_have_written(java: list[str], broker: BrokerProcess) -> None:
    run("topic", "create", "orders", "--partitions", "1", "-b", broker.address)
    run("produce", "orders", "one", "-b", broker.address)
    run("consume", "orders", "--group", "billing", "--until-end", "-b", broker.address)

    (offset,) = printed(java, broker, "OffsetsMessageFormatter")
    assert offset["key"] == {"type": 1, "data": {"group": "billing", "topic": "orders", "partition": 0}}
    assert offset["value"]["data"]["offset"] == 1

    groups = printed(java, broker, "GroupMetadataMessageFormatter")
    new, first, empty = (record["value"]["data"] for record in groups)
    assert (new["generation"], new["members"]) == (0, [])
    assert (first["protocolType"], first["generation"], first["protocol"]) == ("consumer", 1, "range")
    (member,) = first["members"]
    assert (member["memberId"], member["clientId"]) == (first["leader"], "flintmq")
    assert member["subscription"] == base64_of(encode_subscription(["orders"]))
    assert member["assignment"] == base64_of(encode_assignment({"orders": [0]}))
    assert (empty["generation"], empty["members"]) == (2, [])


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()
