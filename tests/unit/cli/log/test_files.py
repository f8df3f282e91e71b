"""Reading the files of a log without a broker: what is sound is told, what is damaged is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.cli.log.files import DumpedBatch, FileKind, FileReport, files_in, inspect, kind_of
from flintmq.records.batch import read_header
from flintmq.records.compression import Codec
from flintmq.records.record import NewRecord, build_batch
from flintmq.storage.durability import offset_checkpoint
from flintmq.storage.indexes import OffsetIndex, TimeIndex
from flintmq.storage.leader_epochs import LeaderEpochs
from flintmq.storage.producer_state import ProducerState

BASE = 100


def batch(base_offset: int, count: int = 2, *, codec: Codec = Codec.NONE, producer_id: int = -1) -> bytes:
    records: list[NewRecord] = [(b"k", b"value %d" % at, 1_000 + base_offset + at, ()) for at in range(count)]
    sequence = 0 if producer_id >= 0 else -1
    return build_batch(
        records, base_offset=base_offset, codec=codec, producer_id=producer_id, producer_epoch=sequence,
        base_sequence=sequence,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "orders-0"
    made.mkdir()
    return made


def write(folder: Path, name: str, data: bytes) -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


def segment(folder: Path, data: bytes) -> str:
    return write(folder, f"{BASE:020d}.log", data)


def look(path: str) -> FileReport:
    kind = kind_of(path)
    assert kind is not None
    return inspect(path, kind, lambda batch: None)


def test_a_sound_segment_is_counted_and_its_batches_told(folder: Path) -> None:
    seen: list[DumpedBatch] = []
    path = segment(folder, batch(BASE) + batch(BASE + 2, 3, codec=Codec.LZ4))
    report = inspect(path, FileKind.SEGMENT, seen.append)
    assert report.damage == []
    assert report.facts["batches"] == 2
    assert report.facts["records"] == 5
    assert (report.facts["first_offset"], report.facts["last_offset"]) == (BASE, BASE + 4)
    assert report.facts["codecs"] == ["lz4", "none"]
    assert [one.position for one in seen] == [0, len(batch(BASE))]
    assert [record.offset for record in seen[1].records()] == [BASE + 2, BASE + 3, BASE + 4]


def test_zeros_at_the_end_are_preallocated_space_and_no_damage(folder: Path) -> None:
    assert look(segment(folder, batch(BASE) + bytes(4096))).damage == []


def test_data_behind_zeros_is_damage(folder: Path) -> None:
    (words,) = look(segment(folder, batch(BASE) + bytes(4096) + b"x")).damage
    assert "data after them" in words


def test_a_batch_with_a_flipped_bit_is_found_and_those_behind_it_are_still_read(folder: Path) -> None:
    first = bytearray(batch(BASE))
    first[-1] ^= 1
    report = look(segment(folder, bytes(first) + batch(BASE + 2)))
    assert report.damage == [f"byte 0: the batch at offset {BASE} fails its CRC"]
    assert report.facts["records"] == 2


def test_a_torn_end_is_found(folder: Path) -> None:
    whole = batch(BASE)
    report = look(segment(folder, whole + batch(BASE + 2)[:-5]))
    assert report.damage == [
        f"byte {len(whole)}: {len(batch(BASE + 2)) - 5} bytes that are not a whole batch"
    ]


def test_offsets_that_go_back_are_found(folder: Path) -> None:
    (words,) = look(segment(folder, batch(BASE + 2) + batch(BASE))).damage
    assert "offsets 100 to 101 after 103" in words


def test_an_index_is_held_against_its_segment(folder: Path) -> None:
    first = batch(BASE)
    segment(folder, first + batch(BASE + 2))
    index = OffsetIndex()
    index.append(3, len(first))
    path = write(folder, f"{BASE:020d}.index", index.encode() + bytes(80))
    report = look(path)
    assert report.damage == []
    assert report.entries == [{"offset": BASE + 3, "position": len(first)}]
    index.append(9, len(first) + 1)
    (words,) = look(write(folder, f"{BASE:020d}.index", index.encode())).damage
    assert "offset 109 is not in a batch" in words


def test_an_index_that_does_not_ascend_or_has_part_of_an_entry_is_found(folder: Path) -> None:
    segment(folder, batch(BASE))
    index = OffsetIndex()
    index.append(1, 0)
    index.append(1, 0)
    assert "the entries do not ascend" in look(write(folder, f"{BASE:020d}.index", index.encode())).damage
    report = look(write(folder, f"{BASE:020d}.index", index.encode()[:11]))
    assert report.damage == ["3 bytes too many for whole entries"]


def test_a_time_index_is_read_and_checked(folder: Path) -> None:
    index = TimeIndex()
    index.append(5_000, 1)
    index.append(6_000, 2)
    report = look(write(folder, f"{BASE:020d}.timeindex", index.encode()))
    assert report.entries == [
        {"timestamp": 5_000, "offset": BASE + 1},
        {"timestamp": 6_000, "offset": BASE + 2},
    ]
    assert report.damage == []
    reversed_entries = index.encode()[12:] + index.encode()[:12]
    assert look(write(folder, f"{BASE:020d}.timeindex", reversed_entries)).damage == [
        "the entries do not ascend"
    ]


def test_a_snapshot_tells_its_producers_and_its_damage(folder: Path) -> None:
    producers = ProducerState()
    producers.record(read_header(batch(BASE, producer_id=9)), BASE)
    data = producers.encode()
    report = look(write(folder, f"{BASE + 2:020d}.snapshot", data))
    assert [(one["producer_id"], one["last_offset"]) for one in report.entries] == [(9, BASE + 1)]
    (words,) = look(write(folder, f"{BASE + 2:020d}.snapshot", data[:-1] + b"\x55")).damage
    assert "CRC" in words


def test_checkpoints_tell_their_entries_and_their_damage(folder: Path) -> None:
    epochs = LeaderEpochs()
    epochs.assign(0, 0)
    epochs.assign(3, 50)
    report = look(write(folder, "leader-epoch-checkpoint", epochs.encode()))
    assert report.entries == [{"epoch": 0, "start_offset": 0}, {"epoch": 3, "start_offset": 50}]
    assert report.damage == []
    assert look(write(folder, "leader-epoch-checkpoint", b"0\n2\n3 50\n0 0\n")).damage == [
        "the epochs do not ascend"
    ]
    points = write(folder, "recovery-point-offset-checkpoint", offset_checkpoint.encode({("orders", 0): 7}))
    assert look(points).entries == [{"topic": "orders", "partition": 0, "offset": 7}]
    assert look(write(folder, "clean-shutdown", b"what?")).damage


def test_a_data_folder_gives_the_files_of_all_partitions_and_nothing_else(folder: Path) -> None:
    path = segment(folder, batch(BASE))
    write(folder, "partition.metadata", b"version: 0")
    deleted = folder.with_name("gone-0.AAAA-delete")
    deleted.mkdir()
    segment(deleted, b"")
    assert files_in(str(folder.parent)) == [path]
    assert files_in(path) == [path]
