"""Data files of a table: what describes them, how they are named and where they lie. Pure.

    data/timestamp_day=2026-11-15/<name>        the name is a FileName

Invariant: name and path follow from what is in a file (topic, partition, offsets) and from a digest of all else that
decides about its bytes (schema, decoding, settings of the writer), never from its writer or the attempt; and a file
once made is never changed. So a writer that finds the file takes it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from flintmq.lake.tables.table import TopicProgress

DATA: Final = "data"
NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, Spark and DuckDB take for no value."""
FOLDER_BYTES_MAX: Final = 240
"""File systems take 255 for one name."""
FOREIGN: Final = -1
"""The partition of a file that somebody else has added; it is of no topic."""

_DIGITS: Final = 16

PartitionValues = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A Parquet file of a table. Its rows are sorted by offset."""

    path: str
    """Below the table's root, with slashes, as in `data/day=2026-11-15/…`."""
    size: int
    rows: int
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    """The offsets that it stands for, the last excluded: with gaps in the log there are fewer rows than that."""
    partition_values: PartitionValues = ()
    """Of a partitioned table: field and value, in the table's order; values as in the path, before escaping."""
    footer: bytes = b""
    """Parquet's metadata by itself (`pyarrow.parquet.read_metadata` reads it): statistics without the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileName:
    """What a file's name says, so that no format has to keep it: `<topic id>-<partition>-<start>-<end>-<digest>`."""

    topic_id: str
    """As hexadecimal digits."""
    partition: int
    start_offset: int
    end_offset: int
    digest: str
    """As hexadecimal digits: of how rows are shaped and written, or of the names of the files that were merged."""
    is_merged: bool = False

    def __str__(self) -> str:
        kind = ".merged" if self.is_merged else ""
        offsets = f"{self.start_offset}-{self.end_offset}"
        return f"{self.topic_id}-{self.partition}-{offsets}-{self.digest}{kind}.parquet"

    @staticmethod
    def of(path: str) -> FileName | None:
        """None if the file is not one of ours."""
        if not (found := _NAME.fullmatch(path.rpartition("/")[2])):
            return None
        topic_id, partition, start, end, digest, merged = found.groups()
        return FileName(
            topic_id=topic_id,
            partition=int(partition),
            start_offset=int(start),
            end_offset=int(end),
            digest=digest,
            is_merged=merged is not None,
        )


_NAME: Final = re.compile(r"([0-9a-f]+)-(\d+)-(\d+)-(\d+)-([0-9a-f]+)(\.merged)?\.parquet")


def data_file_of(
    path: str, *, size: int, rows: int, values: PartitionValues, progress: Mapping[str, TopicProgress]
) -> DataFile:
    """Describe a file by its path: formats know nothing of topics, so its name is where its offsets are read from."""
    name = FileName.of(path)
    topics = [topic for topic, one in progress.items() if name is not None and one.topic_id == name.topic_id]
    return DataFile(
        path=path,
        size=size,
        rows=rows,
        topic=topics[0] if topics else "",
        partition=FOREIGN if name is None else name.partition,
        start_offset=0 if name is None else name.start_offset,
        end_offset=0 if name is None else name.end_offset,
        partition_values=values,
    )


def data_path(name: FileName, values: PartitionValues = ()) -> str:
    return "/".join((DATA, *(partition_directory(field, value) for field, value in values), str(name)))


def partition_directory(field: str, value: str | None) -> str:
    """Return `field=value`, escaped as engines that know Hive's directories expect it."""
    return f"{quote(field, safe='')}={NULL if value is None else quote(value, safe='')}"


def digest_of(*parts: object) -> str:
    """Return a digest of values that JSON can hold."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
