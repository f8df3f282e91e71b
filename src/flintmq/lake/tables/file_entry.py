"""What a format's own entry for a file and the file's name say together. Pure.

Formats keep a file's path and know nothing of topics; so the name is where its offsets are read from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flintmq.lake.tables.data_file import DataFile, FileName
from flintmq.lake.tables.file_names import PartitionValues
from flintmq.lake.tables.table import TopicProgress

FOREIGN: Final = -1
"""The partition of a file that somebody else has added; it is of no topic."""


def data_file(
    path: str, *, size: int, rows: int, values: PartitionValues, progress: Mapping[str, TopicProgress]
) -> DataFile:
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
