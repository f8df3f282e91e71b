"""How far the rows of an Iceberg table go, even if somebody has rolled it back.

Properties are a table's and not a snapshot's: who rolls a table back leaves them as they are, and then they speak of
rows that are gone. So each snapshot of ours says it too, in its summary. Invariant: the newest of ours among the
ancestors of the current snapshot is right, whatever the properties say; others' snapshots in between add nothing to
it. Metadata has hundreds of summaries: of a topic with very many partitions they have only a digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyiceberg.table import Table as Loaded
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from flintmq.lake.tables.data_file import digest_of
from flintmq.lake.tables.properties import from_texts, to_texts
from flintmq.lake.tables.table import TableError, TopicProgress

DIGEST: Final = "flintmq.progress-digest"
_TEXT_CHARS_MAX: Final = 2048


def summary_of(progress: Mapping[str, TopicProgress]) -> dict[str, str]:
    """What a snapshot is to say."""
    texts = to_texts(progress, {})
    is_short = sum(len(text) for text in texts.values()) <= _TEXT_CHARS_MAX
    return {DIGEST: digest_of(texts), **(texts if is_short else {})}


def progress_of(table: Loaded) -> dict[str, TopicProgress]:
    said, _ = from_texts(table.metadata.properties)
    ours = _newest_of_ours(table)
    if ours is None:
        others = [one for one in table.snapshots() if DIGEST in _summary(one)]
        if not others:
            return said  # nothing has been committed yet, or it has expired
        raise TableError(_refusal(table, max(others, key=lambda one: one.sequence_number or 0)))
    summary = _summary(ours)
    if summary[DIGEST] == digest_of(to_texts(said, {})):
        return said
    found, _ = from_texts(summary)
    if digest_of(to_texts(found, {})) != summary[DIGEST]:
        raise TableError(_refusal(table, _of_digest(table, digest_of(to_texts(said, {})))))
    return found


def _newest_of_ours(table: Loaded) -> Snapshot | None:
    ancestors = ancestors_of(table.current_snapshot(), table.metadata)
    return next((one for one in ancestors if DIGEST in _summary(one)), None)


def _of_digest(table: Loaded, digest: str) -> Snapshot | None:
    return next((one for one in table.snapshots() if _summary(one).get(DIGEST) == digest), None)


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _refusal(table: Loaded, forward: Snapshot | None) -> str:
    back = "" if forward is None else f"Set its current snapshot to {forward.snapshot_id} again, or "
    rest = "move the table away and sync anew."
    return (
        f"{'.'.join(table.name())} has been rolled back to a snapshot that does not say how far its rows go. "
        f"{back}{rest if back else rest.capitalize()}"
    )
