"""A segment's file in a worker: read only if it is the one that was planned; what it cannot give is fetched."""

from __future__ import annotations

import dataclasses
import logging
import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")

import pyarrow as pa

from flintmq.arrow.scan import segment_file, task_reader
from flintmq.arrow.scan.limits import ScanLimits
from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import SourceOptions, parse
from flintmq.arrow.scan.segment_file import UnusableSegment, open_segment, read_chunks
from flintmq.arrow.scan.segment_planner import FileTask
from flintmq.arrow.scan.task_reader import read_task
from flintmq.client.admin.segments import IndexEntry, SegmentFile
from flintmq.records.batch import HEADER_SIZE, read_header
from flintmq.records.compression import Codec
from flintmq.records.record import append_record, build_batch, with_payload
from flintmq.storage.durability.flush import METADATA_FILE, encode_metadata
from flintmq.storage.indexes import OFFSET_ENTRY

TOPIC_ID = bytes(range(16))
BASE, END = 100, 140
BATCH_RECORDS = 4
BATCH_BYTES = 105


def batch(offset: int, count: int = BATCH_RECORDS, *, value: bytes = b"") -> bytes:
    records = [(None, value or b"v%d" % one, 1_700_000_000_000, ()) for one in range(offset, offset + count)]
    return build_batch(records, base_offset=offset)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / METADATA_FILE).write_bytes(encode_metadata(TOPIC_ID))
    return tmp_path


def written(folder: Path, data: bytes, *, base: int = BASE, end: int = END) -> SegmentFile:
    path = folder / f"{base:020d}.log"
    path.write_bytes(data)
    return SegmentFile(str(path), base, end, len(data), 0)


@pytest.fixture
def segment(folder: Path) -> SegmentFile:
    """Ten batches, in a file that has no index."""
    return written(folder, b"".join(batch(offset) for offset in range(BASE, END, BATCH_RECORDS)))


# ---- whether it is the one


def test_a_file_that_is_not_the_planned_one_is_not_read(folder: Path, segment: SegmentFile) -> None:
    open_segment(segment, TOPIC_ID).close()
    with pytest.raises(UnusableSegment, match="names another topic"):
        open_segment(segment, bytes(16))
    path = Path(segment.path)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(
        UnusableSegment, match=rf"has {segment.size + 1} bytes, not {segment.size}: it was replaced"
    ):
        open_segment(segment, TOPIC_ID)
    (folder / METADATA_FILE).unlink()
    with pytest.raises(UnusableSegment, match=f"{METADATA_FILE}: No such file"):
        open_segment(segment, TOPIC_ID)
    path.unlink()
    with pytest.raises(UnusableSegment, match=r"\.log: No such file"):
        open_segment(segment, TOPIC_ID)


# ---- where reading starts


def starts(segment: SegmentFile, start: int, end: int = END) -> tuple[int, int]:
    """The first offset that was read, and the one behind the last."""
    with closing(open_segment(segment, TOPIC_ID)) as file:
        found = list(read_chunks(file, segment, start=start, end=end))
    return found[0].base_offset, found[-1].next_offset


def index(segment: SegmentFile, *entries: tuple[int, int]) -> None:
    """Relative last offsets of batches, and where these begin."""
    path = Path(segment.path.removesuffix(".log") + ".index")
    path.write_bytes(b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries))


def test_reading_starts_where_the_index_says(segment: SegmentFile) -> None:
    size = BATCH_BYTES
    assert starts(segment, 130) == (BASE, END), "without an index from the start"
    index(segment, (11, 2 * size), (27, 6 * size))
    assert starts(segment, 130) == (124, END)
    assert starts(segment, 127) == (124, END)
    assert starts(segment, 126) == (108, END)
    assert starts(segment, BASE) == (BASE, END)


@pytest.mark.parametrize(
    "entry",
    [(11, 17), (11, 9 * BATCH_BYTES), (11, 1 << 30), (11, -1)],
    ids=["amid a batch", "behind the offset", "behind the file", "before the file"],
)
def test_an_index_of_another_file_is_not_believed(segment: SegmentFile, entry: tuple[int, int]) -> None:
    assert len(batch(BASE)) == BATCH_BYTES
    index(segment, entry)
    assert starts(segment, 115) == (BASE, END)


def test_an_index_that_is_cut_is_not_believed(segment: SegmentFile) -> None:
    index(segment, (11, 2 * BATCH_BYTES))
    path = Path(segment.path.removesuffix(".log") + ".index")
    path.write_bytes(path.read_bytes()[:-1])
    assert starts(segment, 115) == (BASE, END)


def test_chunks_are_whole_batches_of_bounded_size(folder: Path, segment: SegmentFile) -> None:
    with closing(open_segment(segment, TOPIC_ID)) as file:
        found = list(read_chunks(file, segment, start=BASE, end=END, chunk_bytes=300))
        assert [one.size for one in found] == [2 * BATCH_BYTES] * 5
        assert [one.base_offset for one in found] == [100, 108, 116, 124, 132]
        assert len(list(read_chunks(file, segment, start=BASE, end=109, chunk_bytes=300))) == 2
    large = written(folder, batch(BASE) + batch(104, value=b"x" * 1000) + batch(108), end=112)
    with closing(open_segment(large, TOPIC_ID)) as file:
        assert [
            one.next_offset for one in read_chunks(file, large, start=BASE, end=112, chunk_bytes=300)
        ] == [104, 108, 112]


# ---- what a file cannot give


class Wire:
    """In place of the broker: notes what it is asked for and gives a row for each offset that it has."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.has: Collection[int] | None = None
        """All of them if None."""

    def __call__(
        self, wanted: OffsetRange, columns: Sequence[str], options: SourceOptions
    ) -> Iterator[pa.RecordBatch]:
        self.asked.append((wanted.start, wanted.end))
        found = [one for one in range(wanted.start, wanted.end) if self.has is None or one in self.has]
        yield pa.RecordBatch.from_pydict({"offset": found})


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    made = Wire()
    monkeypatch.setattr(task_reader, "read_range", made)
    return made


def read(
    start: int,
    end: int,
    *found: SegmentFile,
    mode: str = "always",
    limits: ScanLimits | None = None,
    log_start: int = 0,
) -> list[int]:
    options = parse({"kafka.bootstrap.servers": "a:1", "subscribe": "t", "segments": mode})
    options = dataclasses.replace(options, limits=limits or options.limits)
    task = FileTask(OffsetRange("t", TOPIC_ID, 0, start, end), found, (), log_start)
    return [offset for one in read_task(task, ("offset",), options) for offset in one["offset"].to_pylist()]


def test_what_lies_around_the_files_is_fetched(folder: Path, segment: SegmentFile, wire: Wire) -> None:
    after = written(folder, batch(150), base=150, end=160)
    assert read(90, 170, segment, after) == [*range(90, 154), *range(160, 170)]
    assert wire.asked == [(90, 100), (140, 150), (160, 170)]
    wire.asked.clear()
    assert read(111, 113, segment) == [111, 112]
    assert wire.asked == []


def test_files_that_are_gone_are_fetched_in_one_piece(
    folder: Path, segment: SegmentFile, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    more = [written(folder, batch(at), base=at, end=at + 4) for at in (140, 144, 148, 152)]
    for one in (*more[:2], more[3]):
        Path(one.path).unlink()
    with caplog.at_level(logging.INFO):
        assert read(BASE, 156, segment, *more) == list(range(BASE, 156))
    assert wire.asked == [(140, 148), (152, 156)]
    (said,) = caplog.records
    assert said.levelno == logging.WARNING
    assert said.getMessage().startswith("t-0: 3 of 5 segments were fetched from the broker")
    assert f"the first: {more[0].path}: No such file" in said.getMessage()
    caplog.clear()
    with caplog.at_level(logging.INFO):
        read(BASE, 156, segment, *more, mode="auto")
    assert [one.levelno for one in caplog.records] == [logging.INFO], "nobody has asked for files"


def damage(segment: SegmentFile, position: int, value: bytes) -> None:
    with Path(segment.path).open("r+b") as file:
        file.seek(position)
        file.write(value)


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (5 * BATCH_BYTES + HEADER_SIZE + 3, b"\xff"),
        (5 * BATCH_BYTES + 8, b"\xff\xff\xff\xff"),
        (5 * BATCH_BYTES + 8, b"\x00\x00\x01\x00"),
    ],
    ids=["a record", "a length that is none", "a length that leads nowhere"],
)
def test_reading_goes_on_over_the_wire_where_a_file_is_damaged(
    segment: SegmentFile, wire: Wire, position: int, value: bytes
) -> None:
    damage(segment, position, value)
    assert read(BASE, END, segment, limits=ScanLimits(chunk_bytes=300)) == list(range(BASE, END))
    (asked,) = wire.asked
    assert 116 <= asked[0] <= 120
    assert asked[1] == END


def test_a_file_that_is_cut_or_taken_away_while_it_is_read(segment: SegmentFile, wire: Wire) -> None:
    def interrupted(change: Any) -> list[int]:
        options = parse({"kafka.bootstrap.servers": "a:1", "subscribe": "t"})
        options = dataclasses.replace(options, limits=ScanLimits(chunk_bytes=300))
        task = FileTask(OffsetRange("t", TOPIC_ID, 0, BASE, END), (segment,), ())
        batches = read_task(task, ("offset",), options)
        found = next(batches)["offset"].to_pylist()
        change()
        return [*found, *(offset for one in batches for offset in one["offset"].to_pylist())]

    def replace() -> None:
        Path(segment.path).rename(f"{segment.path}.aside")
        written(Path(segment.path).parent, b"something else")

    def cut() -> None:
        with Path(segment.path).open("r+b") as file:
            file.truncate(510)

    assert interrupted(replace) == list(range(BASE, END))
    assert wire.asked == []
    Path(f"{segment.path}.aside").rename(segment.path)
    assert interrupted(cut) == list(range(BASE, END))
    assert wire.asked == [(116, END)]


def test_what_is_deleted_for_clients_is_asked_of_the_broker_though_a_file_still_holds_it(
    segment: SegmentFile, wire: Wire
) -> None:
    assert read(BASE, END, segment, log_start=110) == list(range(BASE, END))
    assert wire.asked == [(BASE, 110)]


# ---- the active segment


@pytest.fixture
def active(segment: SegmentFile) -> SegmentFile:
    """The same ten batches, with every other one in the index."""
    index = tuple(IndexEntry(BASE + 8 * at - 5, (2 * at - 2) * BATCH_BYTES) for at in range(2, 6))
    return dataclasses.replace(segment, is_active=True, index=index)


def put(segment: SegmentFile, data: bytes) -> None:
    """Replace the file, as compaction does."""
    path = Path(segment.path)
    path.unlink()
    path.write_bytes(data)


def test_an_active_segment_may_have_grown_but_not_shrunk(active: SegmentFile, wire: Wire) -> None:
    data = Path(active.path).read_bytes()
    torn = batch(END + BATCH_RECORDS)[:50]
    for more in (b"", batch(END), batch(END) + torn, bytes(1000)):
        put(active, data + more)
        assert read(BASE, END, active) == list(range(BASE, END))
    assert wire.asked == []
    put(active, data[:-1])
    with pytest.raises(UnusableSegment, match="it was replaced"):
        open_segment(active, TOPIC_ID)
    assert read(BASE, END, active) == list(range(BASE, END))
    assert wire.asked == [(BASE, END)]
    put(active, data)
    with pytest.raises(UnusableSegment, match="names another topic"):
        open_segment(active, bytes(16))


def test_an_active_segment_is_read_from_where_the_described_index_leads(active: SegmentFile) -> None:
    assert [entry.last_offset for entry in active.index] == [111, 119, 127, 135]
    index(active, (11, 9 * BATCH_BYTES))
    assert starts(active, 110) == (BASE, END), "an index file is another segment's"
    assert starts(active, 111) == (108, END)
    assert starts(active, 118) == (108, END)
    assert starts(active, 139) == (132, END)
    # The header there is of a batch, but not of the one that was described.
    moved = tuple(entry._replace(position=entry.position - BATCH_BYTES) for entry in active.index)
    assert starts(dataclasses.replace(active, index=moved), 139) == (BASE, END)


def test_a_small_range_takes_little_of_a_large_segment(
    folder: Path, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = [batch(at, value=bytes(1000)) for at in range(BASE, BASE + 4000, BATCH_RECORDS)]
    size = len(large[0])
    found = dataclasses.replace(
        written(folder, b"".join(large), end=BASE + 4000),
        is_active=True,
        index=tuple(IndexEntry(BASE + 4 * at + 3, at * size) for at in range(10, 1000, 10)),
    )
    taken: list[int] = []
    plain = segment_file._read

    def noted(file: Any, segment: SegmentFile, position: int, size: int) -> bytes:
        taken.append(size)
        return plain(file, segment, position, size)

    monkeypatch.setattr(segment_file, "_read", noted)
    assert read(2000, 2010, found) == list(range(2000, 2010))
    assert wire.asked == []
    assert sum(taken) < 200_000 < found.size


def thinned(offset: int, kept: Sequence[int], value: bytes) -> bytes:
    """A batch as compaction leaves it: with its first and last offset, without some of its records."""
    header = read_header(batch(offset))
    payload = bytearray()
    for one in kept:
        append_record(payload, one - offset, 0, None, value, ())
    return with_payload(header._replace(record_count=len(kept)), payload, Codec.NONE)


@pytest.mark.parametrize("seed", range(60))
def test_an_active_segment_replaced_by_a_compacted_one_gives_what_the_broker_has(
    active: SegmentFile, wire: Wire, seed: int
) -> None:
    """Whatever its size is, and wherever a task begins in it."""
    rng = random.Random(seed)
    data, left = b"", []
    is_gapless = rng.random() < 0.3
    for at in range(BASE, END, BATCH_RECORDS):
        if not is_gapless and rng.random() < 0.3:
            continue
        kept = [one for one in range(at, at + BATCH_RECORDS) if rng.random() < 0.7]
        data += thinned(at, kept, bytes(rng.choice((1, 4, 10, 40))))
        left += kept
    # What was written later, and is merged into the segment.
    for at in range(END, END + rng.choice((0, 8, 40, 80)), BATCH_RECORDS):
        data += batch(at)
        left += range(at, at + BATCH_RECORDS)
    if rng.random() < 0.3:
        data = data.ljust(active.size, b"\0")
    put(active, data)
    wire.has = frozenset(left)
    start = rng.randrange(BASE, END)
    end = rng.randrange(start, END) + 1
    limits = ScanLimits(chunk_bytes=rng.choice((150, 300, 1000, 1 << 20)))
    assert read(start, end, active, limits=limits) == [one for one in left if start <= one < end], seed


@pytest.mark.parametrize("seed", range(30))
def test_an_active_segment_cut_and_written_again_gives_every_offset_once(
    active: SegmentFile, wire: Wire, seed: int
) -> None:
    """As a replica does that follows a new leader: other batches, the same offsets."""
    rng = random.Random(seed)
    at = BASE + BATCH_RECORDS * rng.randrange(10)
    data = Path(active.path).read_bytes()[: (at - BASE) // BATCH_RECORDS * BATCH_BYTES]
    while at < END + 20:
        count = rng.randrange(1, 8)
        data += batch(at, count, value=b"x" * rng.randrange(1, 30))
        at += count
    put(active, data)
    start = rng.randrange(BASE, END)
    limits = ScanLimits(chunk_bytes=rng.choice((150, 300, 1000, 1 << 20)))
    assert read(start, END, active, limits=limits) == list(range(start, END)), seed


def test_a_gap_and_an_end_elsewhere_are_not_those_of_the_described_segment(
    active: SegmentFile, wire: Wire
) -> None:
    batches = [batch(offset) for offset in range(BASE, END + 40, BATCH_RECORDS)]
    put(active, b"".join(batches[:3] + batches[4:11]))
    assert read(BASE, END, active, limits=ScanLimits(chunk_bytes=300)) == list(range(BASE, END))
    assert wire.asked == [(108, END)], "from the chunk on that has the gap"
    wire.asked.clear()
    assert read(BASE, END, active, limits=ScanLimits(chunk_bytes=3 * BATCH_BYTES)) == list(range(BASE, END))
    assert wire.asked == [(112, END)], "the gap is between two chunks"
    wire.asked.clear()
    put(active, b"".join(batches[1:11]))
    assert read(BASE, END, active) == list(range(BASE, END))
    assert wire.asked == [(BASE, END)], "the first batch is another one"
    wire.asked.clear()
    large = batch(BASE, value=bytes(BATCH_BYTES))
    put(active, large + b"".join(batches[1:]))
    assert read(BASE, END, active, limits=ScanLimits(chunk_bytes=600)) == list(range(BASE, END))
    (asked,) = wire.asked
    assert BASE < asked[0] < END, "gapless, but the described size is amid a batch"
    wire.asked.clear()
    batches = [batch(offset, value=bytes(107)) for offset in range(BASE, END, BATCH_RECORDS)]
    assert active.size == 2 * len(batches[0])
    put(active, b"".join(batches))
    assert read(BASE, END, active, limits=ScanLimits(chunk_bytes=600)) == list(range(BASE, END))
    assert wire.asked == [(104, END)], "gapless, but the described size is where another batch ends"
