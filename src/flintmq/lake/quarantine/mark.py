"""What a table says of the records that it took from its quarantine. Pure.

    flintmq.quarantine.replayed = {"id": "…", "ranges": {"0": [[3, 4]]}, "replays": 1, "lowest": {"0": 3}}

A table and its quarantine are two tables with two commits. The table's commit adds the rows and names their offsets
by this property; afterwards the quarantine loses the records, and remembers the mark's id. Invariant: a mark is
replaced only when the quarantine has completed it. So a record that is in the quarantine and in a mark that is not
completed is a row of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from flintmq.lake.tables.table import TableError, TableState

REPLAYED: Final = "flintmq.quarantine.replayed"

OffsetRanges = tuple[tuple[int, int], ...]
"""Ends excluded, in order."""


class _Kept(msgspec.Struct):
    id: str
    ranges: dict[int, list[tuple[int, int]]]
    replays: int
    lowest: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayMark:
    """The last replay of quarantined records into a table."""

    id: str
    ranges: Mapping[int, OffsetRanges]
    """By partition."""
    replays: int
    """How many there were, with this one."""
    lowest: Mapping[int, int]
    """By partition, the lowest offset of all of them."""

    @staticmethod
    def of(state: TableState) -> ReplayMark | None:
        text = state.properties.get(REPLAYED)
        if text is None:
            return None
        try:
            kept = msgspec.json.decode(text, type=_Kept)
        except msgspec.MsgspecError as error:
            raise TableError(
                f"the table's property {REPLAYED} makes no sense ({error}); restore it"
            ) from error
        return ReplayMark(
            id=kept.id,
            ranges={partition: tuple(ranges) for partition, ranges in kept.ranges.items()},
            replays=kept.replays,
            lowest=kept.lowest,
        )

    @staticmethod
    def after(before: ReplayMark | None, id: str, offsets: Mapping[int, Iterable[int]]) -> ReplayMark:
        """Return the mark of a commit that takes these offsets from the quarantine."""
        ranges = {partition: ranges_of(some) for partition, some in offsets.items()}
        lowest = {} if before is None else dict(before.lowest)
        for partition, some in ranges.items():
            lowest[partition] = min(some[0][0], lowest.get(partition, some[0][0]))
        return ReplayMark(
            id=id, ranges=ranges, replays=1 + (0 if before is None else before.replays), lowest=lowest
        )

    @property
    def count(self) -> int:
        return sum(end - start for ranges in self.ranges.values() for start, end in ranges)

    def text(self) -> str:
        ranges = {partition: list(some) for partition, some in self.ranges.items()}
        kept = _Kept(self.id, ranges, self.replays, dict(self.lowest))
        return msgspec.json.encode(kept).decode()

    def offsets_of(self, partition: int) -> set[int]:
        return {offset for start, end in self.ranges.get(partition, ()) for offset in range(start, end)}


def ranges_of(offsets: Iterable[int]) -> OffsetRanges:
    found: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return tuple(found)
