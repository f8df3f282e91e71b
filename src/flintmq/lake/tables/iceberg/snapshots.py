"""Snapshots of an Iceberg table: which of them stay, and what a transaction needs of them."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Final

from pyiceberg.table import Table as Loaded
from pyiceberg.table.snapshots import Snapshot

NO_RETRY: Final = {"commit.retry.num-retries": "0"}


def slim_copy(table: Loaded) -> Loaded:
    """For a transaction: pyiceberg copies all metadata again and again, and needs only the last snapshot of it."""
    metadata = table.metadata
    current = {one.snapshot_id for one in metadata.refs.values()} | {metadata.current_snapshot_id}
    copied = copy(table)
    copied.metadata = metadata.model_copy(
        update={
            # Whatever the table says: it is this process that must not try again.
            "properties": {**metadata.properties, **NO_RETRY},
            "snapshots": [one for one in metadata.snapshots if one.snapshot_id in current],
            "snapshot_log": [],
        }
    )
    return copied


def kept_snapshots(table: Loaded, since_ms: int) -> set[int]:
    """Those that count or have counted since then: also the one before, which was current at that moment."""
    refs = {one.snapshot_id for one in table.refs().values()}
    ordered = sorted(table.snapshots(), key=lambda one: one.timestamp_ms)
    before = [one.snapshot_id for one in ordered if one.timestamp_ms < since_ms]
    recent = {one.snapshot_id for one in ordered if one.timestamp_ms >= since_ms}
    return refs | recent | set(before[-1:])


def lists_of(table: Loaded, snapshot: Snapshot) -> Iterator[str]:
    """The files that say which data files a snapshot has."""
    yield snapshot.manifest_list
    for manifest in snapshot.manifests(table.io):
        yield manifest.manifest_path
