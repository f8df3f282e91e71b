"""Limits of the lake, with their defaults. Tests pass others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncLimits:
    ranges_max: int = 1024
    """Of one topic in one commit: the driver holds descriptions of their files. The next commit takes the rest."""
    open_files_max: int = 32
    """Files that a worker writes at once; another one goes on in a file of its own."""
    table_partitions_max: int = 10_000
    """Partitions of the table in one offset range; each is a file."""
    sample_offsets_max: int = 10_000
    """Offsets from which columns are inferred, in all partitions of a topic."""
    replans_max: int = 20
    """In a row, of one topic, without a commit: because of conflicts, new schemas or retention."""
    failures_max: int = 10
    """Syncs in a row that may fail before following gives up."""
    failure_pause_s: float = 5.0
    publish_again_s: float = 600.0
    """Time after which a sync that finds nothing new publishes its progress again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLimits:
    checkpoint_commits: int = 64
    """Commits between two checkpoints of a Parquet or Delta table's log."""
    snapshots_kept: int = 500
    """Snapshots of an Iceberg table that commits keep at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcessLimits:
    """Work up to these limits is done in the command's own process, where Spark need not be started for it."""

    items_max: int = 64
    bytes_max: int = 32 * 1024 * 1024
    """To be read: of the log, or of a table's files."""

    def allow(self, items: int, work_bytes: int | None) -> bool:
        """Work of an unknown size is for Spark."""
        return work_bytes is not None and items <= self.items_max and work_bytes <= self.bytes_max


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineLimits:
    records_max: int = 5_000
    """About how many are replayed with one commit, which names their offsets."""
    bytes_max: int = 64 * 1024 * 1024
    """Of their rows, which the driver holds."""
    attempts_max: int = 20
    """At one commit, each after somebody else's."""


SYNC_LIMITS: Final = SyncLimits()
TABLE_LIMITS: Final = TableLimits()
IN_PROCESS_LIMITS: Final = InProcessLimits()
QUARANTINE_LIMITS: Final = QuarantineLimits()
