"""What a worker says of a file that it wrote, and how such files are named.

Invariant: a file's name follows from what is in it (topic, partition, offsets, how it was shaped), never from who
wrote it or how often that was tried; and a file once made is never changed. So whoever finds it there may take it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


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
    partition_values: tuple[tuple[str, str | None], ...] = ()
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
