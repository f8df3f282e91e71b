"""Which small files become one. Pure.

Invariant: files that are merged are of one topic, one partition of it and one partition of the table, and nothing of
that partition lies between their offsets; so the merged file is sorted like each of them. The same files give the
same plan, and what a plan does with the first files does not depend on those that have come behind them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from flintmq.lake.tables.data_file import DataFile, FileName, PartitionValues, data_path, digest_of

LARGE_ENOUGH: Final = 0.75
"""Of the target: such a file is left as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMerge:
    """Files, in the order of their offsets, that become one."""

    inputs: tuple[DataFile, ...]
    path: str
    """Follows from the inputs' paths and from how it is written."""

    @property
    def size(self) -> int:
        return sum(one.size for one in self.inputs)


def plan_merges(
    files: Iterable[DataFile], *, target_bytes: int, files_min: int, settings: object
) -> list[PlannedMerge]:
    """`settings` are what decides about the bytes beside the inputs."""
    merges = []
    for (topic_id, partition, values), group in _places(files):
        for run in _runs(group, target_bytes):
            if len(run) < files_min:
                continue
            paths = sorted(one.path for one in run)
            name = FileName(
                topic_id=topic_id,
                partition=partition,
                start_offset=min(one.start_offset for one in run),
                end_offset=max(one.end_offset for one in run),
                digest=digest_of(paths, settings),
                is_merged=True,
            )
            merges.append(PlannedMerge(inputs=tuple(run), path=data_path(name, values)))
    return merges


def _places(
    files: Iterable[DataFile],
) -> Iterator[tuple[tuple[str, int, PartitionValues], Sequence[DataFile]]]:
    """Files of one place, by their offsets; those of somebody else are left out."""
    named = []
    for one in files:
        if (name := FileName.of(one.path)) is not None:
            values = tuple((field, value or "", value is None) for field, value in one.partition_values)
            named.append(((name.topic_id, name.partition, values), one))
    named.sort(key=lambda pair: (pair[0], pair[1].start_offset, pair[1].end_offset, pair[1].path))
    for (topic_id, partition, _), group in groupby(named, key=lambda pair: pair[0]):
        members = [one for _, one in group]
        yield (topic_id, partition, members[0].partition_values), members


def _runs(files: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    """Neighbours up to the target; those of the same offsets stay together, or they would overlap others' range."""
    run: list[DataFile] = []
    size = 0
    for _, group in groupby(files, key=lambda one: (one.start_offset, one.end_offset)):
        same = list(group)
        same_size = sum(one.size for one in same)
        is_large = len(same) == 1 and same_size >= target_bytes * LARGE_ENOUGH
        if run and (is_large or size + same_size > target_bytes):
            yield run
            run, size = [], 0
        if not is_large:
            run += same
            size += same_size
    if run:
        yield run
