"""Kafka's own DumpLogSegments reads the folders we write and finds nothing wrong (issue: Kafka's formats).

Needs `java` and the jars of a Kafka 4.3 distribution, from `$KAFKA_LIBS` or the suites' cache.
"""

from __future__ import annotations

import asyncio
import glob
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from flintmq.effects.real import LoopExecutor, RealDisk, SystemClock
from flintmq.records.compression import Codec
from flintmq.records.markers import Marker
from flintmq.settings import TopicConfig
from flintmq.storage.aborted_transactions import AbortedTransaction
from flintmq.storage.log import Log
from flintmq.storage.log_dir import AssignedPartition, LogDir
from support.wire.batches import append, produced

DUMP = "org.apache.kafka.tools.DumpLogSegments"
CACHED_LIBS = os.path.expanduser("~/.cache/flintmq-suites/kafka-*/lib")
BATCHES = 400
TOPIC_ID = bytes(range(16))
COORDINATOR_EPOCH = 7


@pytest.fixture(scope="module")
def java() -> list[str]:
    command = shutil.which("java")
    libs = os.environ.get("KAFKA_LIBS") or next(iter(sorted(glob.glob(CACHED_LIBS), reverse=True)), None)
    if command is None or libs is None or not glob.glob(os.path.join(libs, "kafka-tools-*.jar")):
        pytest.skip("toolchain: DumpLogSegments was not asked, for want of java or Kafka's jars (KAFKA_LIBS)")
    return [command, "-Xmx256m", "-XX:+UseSerialGC", "-cp", os.path.join(libs, "*"), DUMP]


@dataclass
class Written:
    folder: Path
    records: int
    sequences: dict[int, int]

    def files(self, *suffixes: str) -> list[Path]:
        return [path for path in sorted(self.folder.iterdir()) if path.suffix in suffixes]


def write(log: Log, sequences: dict[int, int], random: Random, count: int) -> None:
    """Batches of all codecs, of two producers and of none, with times a little out of order."""
    for n in range(count):
        producer_id = random.choice((1, 2, -1))
        values = [random.randbytes(random.randint(0, 100)) for _ in range(random.randint(1, 8))]
        append(
            log,
            produced(
                *values,
                timestamp=1_700_000_000_000 + log.end_offset * 10 - random.randint(0, 300),
                codec=Codec(n % len(Codec)),
                producer_id=producer_id,
                epoch=0 if producer_id > 0 else -1,
                sequence=sequences[producer_id] if producer_id > 0 else -1,
            ),
            epoch=n * 3 // count,
        )
        if producer_id > 0:
            sequences[producer_id] += len(values)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A partition written, stopped in order, started and written again, and stopped again."""
    path = tmp_path_factory.mktemp("data")
    sequences = {1: 0, 2: 0}
    config = TopicConfig(segment_bytes=20_000, index_interval_bytes=1000, preallocate=True)

    async def run(count: int) -> int:
        executor = LoopExecutor(asyncio.get_running_loop())
        folder = LogDir(str(path), disk=RealDisk(), clock=SystemClock(), executor=executor, descriptors=64)
        folder.check_format()
        await folder.load([AssignedPartition("orders", 0, TOPIC_ID, config)], deleting=frozenset())
        log = folder.logs["orders", 0]
        write(log, sequences, Random(count), count)
        folder.close()
        executor.close()
        return log.end_offset

    asyncio.run(run(BATCHES // 2))
    records = asyncio.run(run(BATCHES - BATCHES // 2))
    return Written(path / "orders-0", records, sequences)


def dump(java: list[str], files: list[Path], *options: str) -> tuple[str, list[str]]:
    """What the tool says, and what it complains of."""
    ran = subprocess.run(
        [*java, *options, "--files", ",".join(map(str, files))],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stderr
    # The tool compares the first offset of each file with -1, and so complains of every segment but the first.
    complaints = re.sub(
        r"Non-consecutive offsets in \S*?0*(\d+)\.log\n +-1 is followed by \1\n", "", ran.stderr
    )
    return ran.stdout, [line for line in complaints.splitlines() if not line.startswith(("SLF4J", "WARNING"))]


def test_every_batch_record_index_and_snapshot_is_as_kafka_has_it(java: list[str], written: Written) -> None:
    assert len(written.files(".log")) > 5
    files = written.files(".log", ".index", ".timeindex", ".snapshot")
    said, complaints = dump(java, files, "--deep-iteration")
    assert complaints == []
    batches = [line for line in said.splitlines() if line.startswith("baseOffset: ")]
    assert len(batches) == BATCHES
    assert all("isvalid: true" in line for line in batches)
    assert {re.search(r"compresscodec: (\w+)", line)[1] for line in batches} == {  # type: ignore[index]
        codec.name.lower() for codec in Codec
    }
    assert len(re.findall(r"^\| offset: ", said, re.MULTILINE)) == written.records
    for suspicion in ("isvalid: false", "Mismatch", "out of order", "Found timestamp", "Corrupt"):
        assert suspicion not in said
    for producer_id, sequence in written.sequences.items():
        entries = re.findall(rf"^producerId: {producer_id} .* lastSequence: (\d+)", said, re.MULTILINE)
        assert int(entries[-1]) == sequence - 1


def test_every_index_passes_kafkas_own_sanity_check(java: list[str], written: Written) -> None:
    indexes = written.files(".index", ".timeindex")
    said, complaints = dump(java, indexes, "--index-sanity-check")
    assert complaints == []
    assert said.count("passed sanity check") == len(indexes)


@pytest.fixture(scope="module")
def transactional(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[AbortedTransaction]]:
    """A partition with transactions across segments, one of them open, flushed and stopped in order."""
    path = tmp_path_factory.mktemp("data")
    config = TopicConfig(segment_bytes=2_000, index_interval_bytes=500)

    async def run() -> list[AbortedTransaction]:
        executor = LoopExecutor(asyncio.get_running_loop())
        folder = LogDir(str(path), disk=RealDisk(), clock=SystemClock(), executor=executor, descriptors=64)
        folder.check_format()
        await folder.load([AssignedPartition("orders", 0, TOPIC_ID, config)], deleting=frozenset())
        log = folder.logs["orders", 0]
        for epoch in range(6):
            for sequence in range(9):
                for producer_id in (1, 2):
                    batch = produced(
                        b"%d" % sequence * 20,
                        producer_id=producer_id,
                        epoch=epoch,
                        sequence=sequence,
                        is_transactional=True,
                    )
                    append(log, batch)
            if epoch < 5:
                end(log, Marker(1, epoch + 1, COORDINATOR_EPOCH, committed=False))
                end(log, Marker(2, epoch + 1, COORDINATOR_EPOCH, committed=epoch % 2 == 0))
        aborted = [one for segment in log.segments for one in segment.aborted]
        folder.close()
        executor.close()
        return aborted

    return path / "orders-0", asyncio.run(run())


def end(log: Log, marker: Marker) -> None:
    log.append_marker(
        marker, bumps_epoch=True, leader_epoch=0, now_ms=1_700_000_000_000, visible_at_once=True
    )


def test_markers_and_aborted_transactions_are_as_kafka_has_them(
    java: list[str], transactional: tuple[Path, list[AbortedTransaction]]
) -> None:
    folder, aborted = transactional
    files = sorted(folder.iterdir())
    said, complaints = dump(java, [path for path in files if path.suffix == ".log"], "--deep-iteration")
    assert complaints == []
    markers = re.findall(
        r"^\| offset: (\d+) .*endTxnMarker: (\w+) coordinatorEpoch: (\d+)", said, re.MULTILINE
    )
    assert [int(at) for at, kind, _ in markers if kind == "ABORT"] == [one.last_offset for one in aborted]
    assert [kind for _, kind, _ in markers].count("COMMIT") == 3
    assert {epoch for _, _, epoch in markers} == {str(COORDINATOR_EPOCH)}
    indexes = [path for path in files if path.suffix == ".txnindex"]
    assert len(indexes) > 2
    said, complaints = dump(java, indexes)
    assert complaints == []
    entries = re.findall(
        r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", said
    )
    assert [AbortedTransaction(*map(int, entry)) for entry in entries] == aborted


def test_the_snapshot_says_which_transactions_are_open(
    java: list[str], transactional: tuple[Path, list[AbortedTransaction]]
) -> None:
    folder, aborted = transactional
    newest = max(path for path in folder.iterdir() if path.suffix == ".snapshot")
    said, complaints = dump(java, [newest])
    assert complaints == []
    firsts = {int(one) for one in re.findall(r"currentTxnFirstOffset: (?:Optional(?:Long)?\[)?(\d+)", said)}
    assert firsts == {aborted[-1].last_offset + 2, aborted[-1].last_offset + 3}, said


def test_the_tool_would_have_noticed(java: list[str], written: Written, tmp_path: Path) -> None:
    for path in written.files(".log", ".index", ".timeindex"):
        shutil.copy(path, tmp_path)
    log, index, times = (sorted(tmp_path.glob(f"*.{suffix}"))[1] for suffix in ("log", "index", "timeindex"))
    data = bytearray(index.read_bytes())
    data[8:12] = (int.from_bytes(data[8:12], "big") + 1).to_bytes(4, "big")
    index.write_bytes(data)
    said, complaints = dump(java, [log, index, times])
    assert any("Mismatches" in line for line in [*complaints, *said.splitlines()])
