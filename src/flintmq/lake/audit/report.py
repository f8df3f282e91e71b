"""What an audit finds: problems, each with its place, and how much was compared. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

PROBLEMS_MAX: Final = 100
"""Told of one section; those behind them are counted."""
_FILES_NAMED: Final = 3


class AuditProblemKind(StrEnum):
    MISSING = "missing"
    """At the broker, and not in the table."""
    DOUBLED = "doubled"
    """In the table more than once."""
    FOREIGN = "foreign"
    """In the table, and not at the broker, or of another topic or partition."""
    CHANGED = "changed"
    """In both, but not the same."""
    UNREADABLE = "unreadable"
    """A file, or a part of the broker's log, that cannot be read."""
    MISPLACED = "misplaced"
    """A file whose offsets are another's, or whose rows are not where they belong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditProblem:
    kind: AuditProblemKind
    topic: str
    partition: int
    start: int
    end: int
    """Behind the last offset that it is about."""
    column: str | None = None
    files: tuple[str, ...] = ()
    """Those of the table that hold these offsets, or should."""
    detail: str = ""

    def __str__(self) -> str:
        offsets = (
            f"offset {self.start}"
            if self.end == self.start + 1
            else f"offsets {self.start} to {self.end - 1}"
        )
        what = str(self.kind) if self.column is None else f"{self.column} {self.kind}"
        named = ", ".join(self.files[:_FILES_NAMED])
        if len(self.files) > _FILES_NAMED:
            named += f" and {len(self.files) - _FILES_NAMED} more"
        where = f" in {named}" if named else ""
        return f"{self.topic}-{self.partition}, {offsets}: {what}{where}" + (
            f": {self.detail}" if self.detail else ""
        )


@dataclass(slots=True, kw_only=True)
class SectionAudit:
    """Of one section; comes back from a worker."""

    compared: int = 0
    """Rows that are in both, and were compared."""
    only_in_lake: int = 0
    """Rows that the broker has no more, since retention took them; checked within the table only."""
    compacted: int = 0
    """Rows that are not at the broker any more because a newer one has their key."""
    undecodable: int = 0
    """Records that have no row, as they cannot be decoded, and of which no table says where they are."""
    extra: dict[str, int] = field(default_factory=dict)
    """In how many records each field is that the table has no column for."""
    rows_by_file: dict[str, int | None] = field(default_factory=dict)
    """None if they could not all be read."""
    problems: list[AuditProblem] = field(default_factory=list)
    problem_count: int = 0
    is_outdated: bool = False
    """The broker has not any more what it had when this was planned."""

    def add(self, problem: AuditProblem) -> None:
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)


def merged_audits(parts: Iterable[SectionAudit]) -> SectionAudit:
    """What was found in parts of a section."""
    whole = SectionAudit()
    for one in parts:
        whole.compared += one.compared
        whole.only_in_lake += one.only_in_lake
        whole.compacted += one.compacted
        whole.undecodable += one.undecodable
        for name, count in one.extra.items():
            whole.extra[name] = whole.extra.get(name, 0) + count
        whole.is_outdated |= one.is_outdated
        whole.problem_count += one.problem_count
        whole.problems += one.problems[: PROBLEMS_MAX - len(whole.problems)]
        for path, rows in one.rows_by_file.items():
            before = whole.rows_by_file.get(path, 0)
            whole.rows_by_file[path] = None if rows is None or before is None else before + rows
    return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAudit:
    topic: str
    table: str
    files: int
    compared: int
    only_in_lake: int
    compacted: int
    undecodable: int
    not_yet: int
    """Offsets that the topic has and the table does not have yet: nothing is wrong with them."""
    extra: Mapping[str, int]
    """In how many records each field is that the table has no column for."""
    open_columns: tuple[str, ...]
    """Columns that were added later and are not filled for all older rows, which is no problem either."""
    problem_count: int
    problems: tuple[AuditProblem, ...]

    @property
    def is_good(self) -> bool:
        return not self.problem_count


def offset_runs(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers as ranges."""
    start = end = None
    for one in offsets:
        if end is not None and start is not None and one == end:
            end = one + 1
            continue
        if start is not None and end is not None:
            yield start, end
        start, end = one, one + 1
    if start is not None and end is not None:
        yield start, end
