"""`lake clean`: files that are in the store and can never be in the table again.

    clean(table, store, keep_ms=…)

Invariant: nothing is deleted that a sync or a compaction under way could still commit, however long it takes:
- a file of a sync, if the table is further than where the file begins: who planned it will meet a Conflict; but for
  a table that is being rebuilt, whose new files begin at the beginning;
- a file of a topic that the table is not made from;
- a merged file, if the files that it was merged from are not all in the table;
- a file of replayed records between others, if the table has come to have another file there;
- a draft whose writer is dead;
- of Iceberg's lists of files, those that no snapshot has, after a day.
Versions of the table that are younger than `keep_ms` stay readable. Files that are not named as ours are left alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, runtime_checkable

from flintmq.lake.compact.derived_file import inputs_of
from flintmq.lake.store.store import Store, StoredFile
from flintmq.lake.tables.data_file import DATA, FileName
from flintmq.lake.tables.other_formats import missing_table
from flintmq.lake.tables.properties import REBUILDING
from flintmq.lake.tables.table import Table, TableError, TableState, TopicProgress

logger = logging.getLogger(__name__)

KEEP_MS: Final = 7 * 24 * 3600 * 1000
METADATA_AGE_MS: Final = 24 * 3600 * 1000
"""Far longer than a commit takes: it begins when all data files are there."""


class OrphanReason(StrEnum):
    LATE = "replaced, or left by a sync that did not commit it"
    OTHER_TOPIC = "belongs to another topic"
    UNMERGED = "merged from files that are not in the table"
    REPLACED = "the table has another file of these offsets"
    UNLISTED = "a list of files that no version of the table uses"
    DRAFT = "left by a process that was killed"


@dataclass(frozen=True, slots=True)
class Orphan:
    path: str
    size: int
    why: OrphanReason


@runtime_checkable
class RetainingTable(Protocol):
    """A table that knows its older versions."""

    def retained(self, state: TableState, *, since_ms: int) -> set[str]: ...


@runtime_checkable
class ExpiringTable(Protocol):
    """A table whose older versions stay readable until they are told to go."""

    def expire(self, state: TableState, *, before_ms: int) -> None: ...

    def metadata_orphans(self, state: TableState, *, before_ms: int) -> list[StoredFile]: ...


def clean(table: Table, store: Store, *, keep_ms: int = KEEP_MS, dry_run: bool = False) -> list[Orphan]:
    """What was deleted, or with `dry_run` would be."""
    if not isinstance(table, RetainingTable):
        raise TableError(f"{table.location} is of a format that cannot be cleaned.")
    # The store first, then the table: what was committed in between is in the table then.
    entries = [entry for entry in store.list(DATA) if entry.path.endswith(".parquet")]
    drafts = store.abandoned_drafts()
    state = table.state()
    if state is None:
        raise missing_table(table, store, advice="nothing is deleted")
    since_ms = time.time_ns() // 1_000_000 - keep_ms
    retained = table.retained(state, since_ms=since_ms)
    present = {one.path for one in table.files(state)}
    orphans = [
        *_orphans(
            entries,
            state.progress.values(),
            retained,
            present,
            store,
            is_rebuilding=REBUILDING in state.properties,
        ),
        *(Orphan(path, store.size(path) or 0, OrphanReason.DRAFT) for path in drafts),
    ]
    if isinstance(table, ExpiringTable):
        if not dry_run:
            # Before their files go: nobody is to be led to a file that is gone.
            table.expire(state, before_ms=since_ms)
        # These have no names that say what they are for: only their age tells that no commit waits for them.
        before_ms = since_ms + keep_ms - max(keep_ms, METADATA_AGE_MS)
        unlisted = table.metadata_orphans(table.state() or state, before_ms=before_ms)
        orphans += [Orphan(one.path, one.size, OrphanReason.UNLISTED) for one in unlisted]
    if dry_run:
        return orphans
    store.delete(one.path for one in orphans)
    for one in orphans:
        logger.info("%s: deleted %s, %s", table.location, one.path, one.why)
    return orphans


def _orphans(
    entries: Collection[StoredFile],
    progress: Collection[TopicProgress],
    retained: Collection[str],
    present: Collection[str],
    store: Store,
    *,
    is_rebuilding: bool,
) -> Iterator[Orphan]:
    if not progress:
        return  # of an empty table nothing can be said
    next_offsets = {one.topic_id: one.next_offsets for one in progress}
    for entry in entries:
        name = FileName.of(entry.path)
        if name is None or entry.path in retained:
            continue
        if name.topic_id not in next_offsets:
            yield Orphan(entry.path, entry.size, OrphanReason.OTHER_TOPIC)
        elif name.is_merged:
            inputs = inputs_of(store, entry.path)
            if not set(inputs) <= set(present):
                yield Orphan(entry.path, entry.size, OrphanReason.UNMERGED)
            elif not inputs and any(_is_at(name, entry.path, one) for one in present):
                yield Orphan(entry.path, entry.size, OrphanReason.REPLACED)
        elif not is_rebuilding and name.start_offset < next_offsets[name.topic_id].get(name.partition, 0):
            yield Orphan(entry.path, entry.size, OrphanReason.LATE)


def _is_at(name: FileName, path: str, other: str) -> bool:
    """Whether another file is of the same partition of the table, and shares offsets."""
    its = FileName.of(other)
    return (
        its is not None
        and (its.topic_id, its.partition) == (name.topic_id, name.partition)
        and path.rpartition("/")[0] == other.rpartition("/")[0]
        and its.start_offset < name.end_offset
        and name.start_offset < its.end_offset
    )
