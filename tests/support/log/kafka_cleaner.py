"""Kafka's own log and cleaner, in a Java process that does as it is told (`clients/java/CleanerOracle.java`).

Needs `java` and the jars of Apache Kafka 4.3.1, from `$KAFKA_LIBS` or the suites' cache; without them the test that
asks for one is skipped.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from types import TracebackType
from typing import NamedTuple

import pytest

from bench.peers import KAFKA_VERSION, kafka_libs

_PROGRAM = os.path.join(os.path.dirname(__file__), "..", "..", "clients", "java", "CleanerOracle.java")
_STOP_S = 30


class KafkaSegment(NamedTuple):
    base_offset: int
    data: bytes
    transaction_index: bytes


class KafkaPass(NamedTuple):
    next_dirty_offset: int
    end_offset: int
    """Up to where the log could be cleaned, which is where a segment begins."""
    segments: list[KafkaSegment]
    """All of the log, the active one too."""


class KafkaCleaner:
    def __init__(self) -> None:
        java = shutil.which("java")
        libs = kafka_libs()
        if java is None or not os.path.exists(os.path.join(libs, f"kafka-storage-{KAFKA_VERSION}.jar")):
            pytest.skip(
                "toolchain: Kafka's own cleaner was not asked, for want of java or its jars (KAFKA_LIBS)"
            )
        self._process = subprocess.Popen(
            [
                java,
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                *("-cp", os.path.join(libs, "*"), _PROGRAM),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout

    def __enter__(self) -> KafkaCleaner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=_STOP_S)

    def new_log(self, folder: str) -> None:
        """From now on everything is about this one."""
        name = folder.encode()
        self._in.write(b"N" + struct.pack(">H", len(name)) + name)

    def append(self, batch: bytes) -> None:
        self._in.write(b"A" + struct.pack(">i", len(batch)) + batch)

    def roll(self) -> None:
        self._in.write(b"R")

    def clean(
        self,
        first_dirty_offset: int,
        end_offset: int,
        *,
        now_ms: int,
        delete_retention_ms: int,
        segment_bytes: int,
        dedupe_bytes: int,
        load_factor: float,
    ) -> KafkaPass:
        """One pass, forced, whatever the share of the dirty part is."""
        self._in.write(
            b"C"
            + struct.pack(
                ">qqqqiid",
                first_dirty_offset,
                end_offset,
                now_ms,
                delete_retention_ms,
                segment_bytes,
                dedupe_bytes,
                load_factor,
            )
        )
        self._in.flush()
        next_dirty, end, count = struct.unpack(">qqi", self._read(20))
        segments = []
        for _ in range(count):
            (base,) = struct.unpack(">q", self._read(8))
            segments.append(KafkaSegment(base, self._blob(), self._blob()))
        return KafkaPass(next_dirty, end, segments)

    def _blob(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = self._out.read(size)
        assert len(data) == size, "Kafka's cleaner ended; it has said why"
        return data
