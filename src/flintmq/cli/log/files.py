"""The files of a log, read and checked without a broker. Nothing is ever written.

    .log                        batches, each with its CRC
    .index, .timeindex          sparse indexes, held against the segment beside them
    .snapshot                   what is known of idempotent producers
    leader-epoch-checkpoint     where each leader's time began
    …-checkpoint, clean-shutdown    an offset for each partition

What is wrong is collected, not raised, so that one bad file does not hide another. This module must not
know how anything is printed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any, Final

from flintmq.effects.real import RealDisk, RealFile
from flintmq.errors import CorruptionError, RequestError
from flintmq.records.batch import HEADER_SIZE, LENGTH_END, BatchHeader, crc_is_right, read_header
from flintmq.records.compression import Codec
from flintmq.records.limits import REPLAYED_BYTES_MAX
from flintmq.records.record import MAGIC, Record, records_of
from flintmq.storage.durability import offset_checkpoint
from flintmq.storage.durability.flush import EPOCHS_FILE
from flintmq.storage.indexes import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from flintmq.storage.leader_epochs import LeaderEpochs
from flintmq.storage.log_dir import CLEAN_SHUTDOWN, DELETED
from flintmq.storage.producer_state import ProducerState
from flintmq.storage.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, file_name

_ZEROS_STEP: Final = 1024 * 1024


class FileKind(Enum):
    SEGMENT = "segment"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    PRODUCERS = "producer snapshot"
    EPOCHS = "leader epochs"
    OFFSETS = "offset checkpoint"


@dataclass(slots=True)
class FileReport:
    path: str
    kind: FileKind
    facts: dict[str, Any] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)
    """The content, of files that are small."""
    damage: list[str] = field(default_factory=list)


@dataclass(slots=True)
class DumpedBatch:
    position: int
    header: BatchHeader
    crc_right: bool
    data: memoryview

    def records(self) -> list[Record]:
        """RequestError if they cannot be read."""
        return list(records_of(self.data, limit=REPLAYED_BYTES_MAX))


def kind_of(path: str) -> FileKind | None:
    name = os.path.basename(path)
    stem, suffix = os.path.splitext(name)
    if stem.isdecimal():
        return {
            LOG: FileKind.SEGMENT,
            INDEX: FileKind.OFFSET_INDEX,
            TIME_INDEX: FileKind.TIME_INDEX,
            SNAPSHOT: FileKind.PRODUCERS,
        }.get(suffix)
    if name == EPOCHS_FILE:
        return FileKind.EPOCHS
    if name.endswith("-offset-checkpoint") or name == CLEAN_SHUTDOWN:
        return FileKind.OFFSETS
    return None


def files_in(path: str) -> list[str]:
    """The files to look at: the one named, or those of a partition's folder, or of all partitions' folders.

    Of a deleted partition nothing is expected any more.
    """
    if not os.path.isdir(path):
        return [path]
    return [
        os.path.join(directory, name)
        for directory, _, names in sorted(os.walk(path))
        for name in sorted(names)
        if kind_of(name) is not None and not directory.endswith(DELETED)
    ]


def inspect(path: str, kind: FileKind, on_batch: Callable[[DumpedBatch], object]) -> FileReport:
    """Read and check one file; the batches of a segment are told one by one."""
    report = FileReport(path, kind)
    file = RealDisk().open(path, writable=False)
    try:
        if kind is FileKind.SEGMENT:
            _inspect_segment(report, file, on_batch)
        else:
            data = file.pread(file.size(), 0)
            report.facts["bytes"] = len(data)
            _INSPECTORS[kind](report, data)
    except CorruptionError as error:
        report.damage.append(str(error))
    finally:
        file.close()
    return report


# ---- segments


def walk(file: RealFile, damage: list[str], base_offset: int) -> Iterator[DumpedBatch]:
    """Every batch that can be found. A batch whose content is bad is passed over; without a length that makes
    sense there is no way on."""
    size, position, expected = file.size(), 0, base_offset
    while position < size:
        head = file.pread(HEADER_SIZE, position)
        if not any(head):
            if not _is_zero(file, position, size):
                damage.append(f"byte {position}: zeros where a batch should begin, and data after them")
            return
        header = read_header(head) if len(head) == HEADER_SIZE else None
        if header is None or header.length < HEADER_SIZE - LENGTH_END or position + header.size > size:
            damage.append(f"byte {position}: {size - position} bytes that are not a whole batch")
            return
        if header.magic != MAGIC:
            damage.append(f"byte {position}: a batch of magic {header.magic}")
            return
        data = memoryview(file.pread(header.size, position))
        right = crc_is_right(data, header.crc)
        if not right:
            damage.append(f"byte {position}: the batch at offset {header.base_offset} fails its CRC")
        elif header.base_offset < expected or header.last_offset_delta < 0:
            damage.append(
                f"byte {position}: offsets {header.base_offset} to {header.last_offset} after {expected - 1}"
            )
        else:
            expected = header.last_offset + 1
        yield DumpedBatch(position, header, right, data)
        position += header.size


def _is_zero(file: RealFile, position: int, size: int) -> bool:
    return not any(any(file.pread(_ZEROS_STEP, at)) for at in range(position, size, _ZEROS_STEP))


def _inspect_segment(report: FileReport, file: RealFile, on_batch: Callable[[DumpedBatch], object]) -> None:
    batches = records = 0
    first = last = None
    codecs: set[str] = set()
    newest = -1
    for batch in walk(file, report.damage, _base_offset(report.path)):
        header = batch.header
        batches += 1
        if batch.crc_right:
            records += header.record_count
            first = header.base_offset if first is None else first
            last = header.last_offset
            newest = max(newest, header.max_timestamp)
            codecs.add(codec_name(header.codec))
            try:
                found = len(batch.records())
                if found != header.record_count:
                    report.damage.append(f"byte {batch.position}: {found} records, not {header.record_count}")
            except RequestError as error:
                report.damage.append(f"byte {batch.position}: {error}")
        on_batch(batch)
    report.facts = {
        "bytes": file.size(),
        "batches": batches,
        "records": records,
        "first_offset": first,
        "last_offset": last,
        "max_timestamp": newest,
        "codecs": sorted(codecs),
    }


def codec_name(number: int) -> str:
    try:
        return Codec(number).label
    except ValueError:
        return f"codec {number}"


def _base_offset(path: str) -> int:
    return int(os.path.splitext(os.path.basename(path))[0])


def _batches_beside(path: str) -> dict[int, BatchHeader] | None:
    """Positions and headers of the segment that an index belongs to; None if it is not there."""
    base = _base_offset(path)
    log = os.path.join(os.path.dirname(path), file_name(base, LOG))
    if not os.path.exists(log):
        return None
    file = RealDisk().open(log, writable=False)
    try:
        return {batch.position: batch.header for batch in walk(file, [], base)}
    finally:
        file.close()


# ---- the small files


def _inspect_offset_index(report: FileReport, data: bytes) -> None:
    base = _base_offset(report.path)
    index = OffsetIndex.decode(_whole_entries(report, data, OFFSET_ENTRY.size))
    pairs = list(zip(index.offsets, index.positions, strict=True))
    report.entries = [{"offset": base + offset, "position": position} for offset, position in pairs]
    if any(after <= before for column in zip(*pairs, strict=True) for before, after in pairwise(column)):
        report.damage.append("the entries do not ascend")
    batches = _batches_beside(report.path)
    if batches is None:
        report.damage.append("there is no segment beside it")
        return
    for offset, position in pairs:
        header = batches.get(position)
        if header is None or not header.base_offset <= base + offset <= header.last_offset:
            report.damage.append(f"offset {base + offset} is not in a batch at byte {position}")


def _inspect_time_index(report: FileReport, data: bytes) -> None:
    base = _base_offset(report.path)
    index = TimeIndex.decode(_whole_entries(report, data, TIME_ENTRY.size))
    pairs = list(zip(index.timestamps, index.offsets, strict=True))
    report.entries = [{"timestamp": timestamp, "offset": base + offset} for timestamp, offset in pairs]
    if not index.is_sound():
        report.damage.append("the entries do not ascend")


def _whole_entries(report: FileReport, data: bytes, entry_bytes: int) -> bytes:
    """Without the zeros that a preallocated index ends with."""
    if len(data) % entry_bytes:
        report.damage.append(f"{len(data) % entry_bytes} bytes too many for whole entries")
    end = len(data) - len(data) % entry_bytes
    empty = bytes(entry_bytes)
    while end and data[end - entry_bytes : end] == empty:
        end -= entry_bytes
    return data[:end]


def _inspect_producers(report: FileReport, data: bytes) -> None:
    report.entries = [
        {
            "producer_id": producer.producer_id,
            "epoch": producer.epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": producer.batches[-1].last_offset if producer.batches else -1,
            "last_timestamp": producer.last_timestamp,
            "coordinator_epoch": producer.coordinator_epoch,
            "transaction_first_offset": producer.txn_first_offset,
        }
        for producer in ProducerState.decode(data)
    ]


def _inspect_epochs(report: FileReport, data: bytes) -> None:
    sound = LeaderEpochs.decode(data).encode().split()
    if sound != data.split():
        report.damage.append("the epochs do not ascend")
    rows = [line.split(b" ") for line in data.splitlines()[2:]]
    report.entries = [{"epoch": int(epoch), "start_offset": int(start)} for epoch, start in rows]


def _inspect_offsets(report: FileReport, data: bytes) -> None:
    report.entries = [
        {"topic": topic, "partition": partition, "offset": offset}
        for (topic, partition), offset in offset_checkpoint.decode(data).items()
    ]


_INSPECTORS: Final[dict[FileKind, Callable[[FileReport, bytes], None]]] = {
    FileKind.OFFSET_INDEX: _inspect_offset_index,
    FileKind.TIME_INDEX: _inspect_time_index,
    FileKind.PRODUCERS: _inspect_producers,
    FileKind.EPOCHS: _inspect_epochs,
    FileKind.OFFSETS: _inspect_offsets,
}
