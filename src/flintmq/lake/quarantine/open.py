"""From a location, a topic and a format to a table and its quarantine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flintmq.lake.quarantine.table import QuarantineTable
from flintmq.lake.store.store import Store
from flintmq.lake.syncing.options import QUARANTINE_SUFFIX
from flintmq.lake.tables.factory import open_with_store
from flintmq.lake.tables.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedTopic:
    """A table and its quarantine."""

    topic: str
    table: Table
    store: Store
    quarantine: QuarantineTable


def open_quarantined(
    root: str,
    topic: str,
    format: str,
    *,
    settings: Mapping[str, str] | None = None,
    catalog: str | None = None,
    namespace: str | None = None,
) -> QuarantinedTopic:
    """Neither of them need be there."""
    opened, quarantine = (
        open_with_store(root, name, format, settings=settings, catalog=catalog, namespace=namespace)
        for name in (topic, topic + QUARANTINE_SUFFIX)
    )
    return QuarantinedTopic(
        topic=topic,
        table=opened.table,
        store=opened.store,
        quarantine=QuarantineTable(quarantine.table, quarantine.store),
    )
