"""What a request costs on every machine alike: its system calls and its allocations, counted from outside.

The numbers are those of the present code, a little rounded up. One that is exceeded is no failure of the machine:
either something was added to the path of every request, or the number has to be raised with a reason.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    FetchResponse,
    FindCoordinatorRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    ProduceResponse,
)
from support.broker.broker_process import BrokerProcess
from support.wire.wire import Wire, batch_of, fetch_request, produce_request

COMPILED = os.environ.get("FLINT_TEST_COMPILED") or os.environ.get("FLINTMQ_COMPILED")
COUNTED = 400
PATIENCE_S = 30.0
TOPIC = "t"
PRODUCE_VERSION, FETCH_VERSION, COMMIT_VERSION = 9, 12, 8
IGNORED = ("restart_syscall",)


def commit() -> Message:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)


REQUESTS: dict[str, tuple[Callable[[], Message], int]] = {
    "produce one record": (lambda: produce_request(TOPIC, batch_of(bytes(100)), acks=1), PRODUCE_VERSION),
    "produce 16 KiB": (
        lambda: produce_request(TOPIC, batch_of(*[bytes(100)] * 148), acks=1),
        PRODUCE_VERSION,
    ),
    "fetch": (lambda: fetch_request(TOPIC, {0: 0}, partition_max_bytes=1), FETCH_VERSION),
    "commit": (commit, COMMIT_VERSION),
}


class Requests:
    """One kind of request, sent again and again by one connection."""

    def __init__(self, wire: Wire, kind: str) -> None:
        make, version = REQUESTS[kind]
        self._wire = wire
        _wait_until_served(wire, make(), version)
        self._frame = wire.frame(make(), version, 1)

    def send(self, count: int) -> None:
        for _ in range(count):
            self._wire.sock.sendall(self._frame)
            self._wire.receive_frame()


def _wait_until_served(wire: Wire, request: Message, version: int) -> None:
    if isinstance(request, OffsetCommitRequest):
        wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    deadline = time.monotonic() + PATIENCE_S
    while (code := _error_code(wire.ask(request, version))) != ErrorCode.NONE:
        assert time.monotonic() < deadline, ErrorCode(code).name


def _error_code(response: Message) -> int:
    match response:
        case ProduceResponse():
            return response.responses[0].partition_responses[0].error_code
        case FetchResponse():
            assert response.responses[0].partitions[0].records
            return response.responses[0].partitions[0].error_code
        case OffsetCommitResponse():
            return response.topics[0].partitions[0].error_code
    raise AssertionError(response)


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    file = tmp_path / "allocations"
    file.write_bytes(bytes(8))
    return file


def preloaded(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or platform.libc_ver()[0] != "glibc":
        pytest.skip("toolchain: a C compiler and glibc, to count allocations")
    library = folder / "allocations.so"
    source = Path(__file__).parents[2] / "support" / "broker" / "allocations.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source)], check=True)
    return library


def prepared(broker: BrokerProcess) -> Wire:
    wire = Wire(broker.address)
    wire.create_topic(TOPIC)
    wire.produce(TOPIC, batch_of(*[bytes(100)] * 148))
    return wire


@pytest.mark.parametrize(
    ("kind", "compiled", "plain"),
    [
        ("produce one record", 61, 76),
        ("produce 16 KiB", 76, 111),
        ("fetch", 79, 118),
        ("commit", 188, 228),
    ],
)
def test_allocations(tmp_path: Path, counter: Path, kind: str, compiled: int, plain: int) -> None:
    environment = {
        "LD_PRELOAD": str(preloaded(tmp_path)),
        "FLINT_TEST_ALLOCATIONS": str(counter),
        "PYTHONMALLOC": "malloc",
    }
    with BrokerProcess(tmp_path / "data", env=environment) as broker, prepared(broker) as wire:
        requests = Requests(wire, kind)
        requests.send(COUNTED)
        (before,) = struct.unpack("=Q", counter.read_bytes())
        requests.send(COUNTED)
        (after,) = struct.unpack("=Q", counter.read_bytes())
    assert (after - before) / COUNTED <= (compiled if COMPILED else plain)


@pytest.mark.parametrize(
    ("kind", "most"), [("produce one record", 4), ("produce 16 KiB", 4), ("fetch", 5), ("commit", 4)]
)
def test_system_calls(tmp_path: Path, kind: str, most: int) -> None:
    """Waiting for the request, reading it, reading or writing the log, and answering."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("toolchain: strace is not installed")
    with BrokerProcess(tmp_path / "data") as broker, prepared(broker) as wire:
        requests = Requests(wire, kind)
        requests.send(COUNTED)
        counts = tmp_path / "counts"
        tracer = subprocess.Popen(
            [strace, "-f", "-c", "-o", str(counts), "-p", str(broker.pid)], stderr=subprocess.PIPE, text=True
        )
        try:
            assert tracer.stderr is not None
            line = tracer.stderr.readline()
            if "attached" not in line:
                pytest.skip(f"toolchain: strace may not attach here: {line.strip()}")
            requests.send(COUNTED)
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait()
    calls = dict(_calls(counts.read_text()))
    # Once in a while there is one more: a timer, or a request that came in two pieces.
    assert sum(calls.values()) / COUNTED <= most + 0.1, calls


def _calls(summary: str) -> Iterator[tuple[str, int]]:
    """By name, from the table that `strace -c` writes."""
    for line in summary.splitlines():
        columns = line.split()
        if len(columns) >= 5 and columns[3].isdigit() and columns[-1] not in ("total", *IGNORED):
            yield columns[-1], int(columns[3])
