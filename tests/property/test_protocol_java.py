"""Kafka's own Java classes read our bytes and write the same, for every message and version (B1, Z1).

Needs `java` and the kafka-clients jar, from `$KAFKA_CLIENTS_JAR` or the local Maven repository, and
slf4j-api, which Kafka's record classes log through.
"""

from __future__ import annotations

import glob
import os
import random
import shutil
import struct
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from flintmq.protocol import messages
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.codegen.schema import own_definitions
from flintmq.protocol.codegen.structures import Message

Populate = Callable[..., Any]

SAMPLES = 5
ORACLE = os.path.join(os.path.dirname(__file__), "..", "clients", "java", "ProtocolOracle.java")
MAVEN = os.path.expanduser("~/.m2/repository")


def newest(pattern: str) -> str | None:
    found = sorted(path for path in glob.glob(os.path.join(MAVEN, pattern)) if "sources" not in path)
    return found[-1] if found else None


@pytest.fixture(scope="module")
def java_command() -> list[str]:
    java = shutil.which("java")
    clients = os.environ.get("KAFKA_CLIENTS_JAR") or newest(
        "org/apache/kafka/kafka-clients/4.3.1/kafka-clients-4.3.1.jar"
    )
    slf4j = newest("org/slf4j/slf4j-api/*/slf4j-api-*.jar")
    missing = [
        what for what, path in (("java", java), ("kafka-clients", clients), ("slf4j-api", slf4j)) if not path
    ]
    if missing:
        pytest.skip(f"toolchain: Kafka's own classes were not asked, for want of {', '.join(missing)}")
    return [str(java), "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{clients}:{slf4j}", ORACLE]


def java_class(cls: type[Message]) -> str:
    return cls.__name__ if cls.kind == "data" else cls.__name__ + "Data"


def frame(cls: type[Message], version: int, data: bytes) -> bytes:
    name = java_class(cls).encode()
    return struct.pack(">H", len(name)) + name + struct.pack(">hi", version, len(data)) + data


def answers(stream: bytes) -> list[bytes | str]:
    """What the oracle wrote, message by message; text is the exception it met."""
    found: list[bytes | str] = []
    at = 0
    while at < len(stream):
        (size,) = struct.unpack_from(">i", stream, at)
        at += 4
        if size < 0:
            (size,) = struct.unpack_from(">H", stream, at)
            at += 2
            found.append(stream[at : at + size].decode())
        else:
            found.append(stream[at : at + size])
        at += size
    return found


def test_kafka_reads_our_bytes_and_writes_the_same(java_command: list[str], populate: Populate) -> None:
    asked: list[tuple[type[Message], int, Message, bytes]] = []
    own = set(own_definitions().names())
    for name in messages.names():
        if name in own:
            continue
        cls = messages.load(name)
        source = random.Random(name)
        for version in range(cls.versions[0], cls.versions[1] + 1):
            for _ in range(SAMPLES):
                message = populate(cls, version, source)
                asked.append((cls, version, message, encode(message, version)))
    frames = b"".join(frame(cls, version, data) for cls, version, _, data in asked)
    ran = subprocess.run(java_command, input=frames, capture_output=True, check=False, timeout=100)
    assert ran.returncode == 0, ran.stderr.decode()
    replies = answers(ran.stdout)
    assert len(replies) == len(asked)
    for (cls, version, message, data), reply in zip(asked, replies, strict=True):
        assert reply == data, (cls.__name__, version, message)
        assert decode(cls, data, version) == (message, len(data))
