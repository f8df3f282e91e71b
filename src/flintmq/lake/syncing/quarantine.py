"""Records that could not be decoded, on their way to where they are kept: a table or a topic.

    change = …properties={**pending.to_properties(…)}     the table's commit says which files of poison go with it
    quarantine.complete(pending)                          afterwards, or when the next sync begins

The files of poison are made before the table's commit, and the commit names them: from then on it is certain what is
poison and what is not, whatever decoders or registries say later. Only then do they go where they are kept, which
remembers by its own progress that it has them. Invariant: nobody commits to a table on top of a pending quarantine
that is not complete. So a kill anywhere between the two is made up for by whoever comes next, and nothing is twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from flintmq.lake.quarantine.mark import ReplayMark
from flintmq.lake.quarantine.table import QuarantineTable
from flintmq.lake.store.store import Store, open_store
from flintmq.lake.syncing.range_writer import FileLayout, with_footer
from flintmq.lake.syncing.row_decoder import POISON
from flintmq.lake.tables.data_file import DataFile
from flintmq.lake.tables.properties import REBUILT
from flintmq.lake.tables.table import Conflict, Table, TableChange, TableError, TableState, TopicProgress

logger = logging.getLogger(__name__)

PENDING: Final = "flintmq.quarantine.pending"
_ATTEMPTS_MAX: Final = 10


class _File(msgspec.Struct, array_like=True):
    path: str
    size: int
    rows: int
    partition: int
    start: int
    end: int


class _Kept(msgspec.Struct):
    topic_id: str
    next_offsets: dict[int, int]
    files: list[_File]


@dataclass(frozen=True, slots=True)
class PendingQuarantine:
    """Files of poison that belong to a commit of the table."""

    topic: str
    progress: TopicProgress
    """Of the commit."""
    files: tuple[DataFile, ...]

    @staticmethod
    def of(state: TableState, topic: str) -> PendingQuarantine | None:
        """None also if the table has been rolled back since: what it says is then of rows that are gone."""
        text = state.properties.get(PENDING)
        if text is None:
            return None
        try:
            kept = msgspec.json.decode(text, type=_Kept)
        except msgspec.MsgspecError as error:
            raise TableError(
                f"the table's property {PENDING} makes no sense ({error}); restore it"
            ) from error
        files = tuple(
            DataFile(
                path=one.path,
                size=one.size,
                rows=one.rows,
                topic=topic,
                partition=one.partition,
                start_offset=one.start,
                end_offset=one.end,
            )
            for one in kept.files
        )
        pending = PendingQuarantine(topic, TopicProgress(kept.topic_id, kept.next_offsets), files)
        return pending if pending.is_in(state.progress.get(topic)) else None

    def text(self) -> str:
        files = [
            _File(one.path, one.size, one.rows, one.partition, one.start_offset, one.end_offset)
            for one in self.files
        ]
        kept = _Kept(self.progress.topic_id, dict(self.progress.next_offsets), files)
        return msgspec.json.encode(kept).decode()

    def is_in(self, progress: TopicProgress | None) -> bool:
        """Whether who has come so far has these files."""
        return (
            progress is not None
            and progress.topic_id == self.progress.topic_id
            and all(
                progress.next_offsets.get(partition, 0) >= offset
                for partition, offset in self.progress.next_offsets.items()
            )
        )


def with_pending(properties: Mapping[str, str], pending: PendingQuarantine | None) -> dict[str, str]:
    """The properties of a commit."""
    left = {name: value for name, value in properties.items() if name != PENDING}
    return left if pending is None or not pending.files else {**left, PENDING: pending.text()}


class Quarantine(Protocol):
    def layout(self) -> FileLayout:
        """How the files of poison are to be written."""

    def check(self, topic: str, progress: TopicProgress | None) -> None:
        """TableError if it has poison of offsets that the table is yet to come to, which would be there twice."""

    def complete(self, pending: PendingQuarantine) -> None:
        """Let them be where they are kept, once; nothing to do if they are."""

    def complete_rebuild(self, state: TableState, topic: str) -> None:
        """Replace all records by those that the rebuild of the table in this state found, if that was not done."""

    def complete_replay(self, state: TableState) -> None:
        """Remove the records that the table in this state has taken from the quarantine, if that was not done."""


def check_not_further(
    quarantine: TableState, topic: str, progress: TopicProgress | None, location: str
) -> None:
    """Raise TableError if the quarantine is further than the table's progress."""
    has = quarantine.progress.get(topic)
    if has is None or (progress is not None and progress.topic_id != has.topic_id):
        return
    known = {} if progress is None else progress.next_offsets
    for partition, offset in has.next_offsets.items():
        if offset > known.get(partition, 0):
            raise TableError(
                f"{location} is further in {topic}-{partition} (offset {offset}) than the table that it belongs to "
                f"({known.get(partition, 0)}), which was rolled back or made anew; roll it back as far, or move it "
                "away"
            )


class TableQuarantine:
    def __init__(self, table: Table, settings: Mapping[str, str]) -> None:
        self._table = table
        self._settings = settings

    def layout(self) -> FileLayout:
        return FileLayout(store=self._store(), schema=self._state().schema)

    def check(self, topic: str, progress: TopicProgress | None) -> None:
        if (state := self._table.state()) is not None:
            check_not_further(state, topic, progress, self._table.location)

    def complete_rebuild(self, state: TableState, topic: str) -> None:
        if (rebuilt := state.properties.get(REBUILT)) is None:
            return
        if self._state().properties.get(REBUILT) == rebuilt:
            return
        pending = PendingQuarantine.of(state, topic)
        files = () if pending is None else self._with_footers(pending.files)
        progress = {topic: state.progress[topic]} if topic in state.progress else {}
        QuarantineTable(self._table, self._store()).rebuild(rebuilt, files, progress)

    def complete_replay(self, state: TableState) -> None:
        QuarantineTable(self._table, self._store()).complete(ReplayMark.of(state))

    def complete(self, pending: PendingQuarantine) -> None:
        for _ in range(_ATTEMPTS_MAX):
            state = self._state()
            if pending.is_in(state.progress.get(pending.topic)) or self._is_in_topic(pending):
                return
            change = TableChange(
                base=state,
                added=self._with_footers(pending.files),
                progress={**state.progress, pending.topic: pending.progress},
            )
            try:
                self._table.commit(change)
            except Conflict:
                # Another sync settles it too, or somebody compacts.
                continue
            logger.info(
                "%s: %d records are quarantined in %s",
                pending.topic,
                sum(one.rows for one in pending.files),
                self._table.location,
            )
            return
        raise TableError(
            f"{self._table.location} was changed by others {_ATTEMPTS_MAX} times in a row; run the sync again"
        )

    def _is_in_topic(self, pending: PendingQuarantine) -> bool:
        """Whether the quarantine was a topic then: it deletes the files when it has their records."""
        return bool(pending.files) and self._store().size(pending.files[0].path) is None

    def _state(self) -> TableState:
        state = self._table.state()
        if state is not None:
            return state
        try:
            return self._table.create(POISON)
        except Conflict:
            state = self._table.state()
            assert state is not None
            return state

    def _store(self) -> Store:
        return open_store(self._table.location, self._settings)

    def _with_footers(self, files: Iterable[DataFile]) -> tuple[DataFile, ...]:
        store = self._store()
        return tuple(one if one.footer else with_footer(store, one) for one in files)
