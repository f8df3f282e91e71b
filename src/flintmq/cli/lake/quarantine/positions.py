"""Records named by partition and offset, and the quarantine that they are in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.cli.lake.options import check_installed
from flintmq.errors import ConfigurationError

if TYPE_CHECKING:
    from flintmq.lake.quarantine.open import QuarantinedTopic
    from flintmq.lake.quarantine.table import Position


def parse_position(text: str) -> Position:
    """Parse `PARTITION:OFFSET`."""
    from flintmq.lake.quarantine.table import Position

    partition, colon, offset = text.partition(":")
    if not (colon and partition.isdecimal() and offset.isdecimal()):
        raise ConfigurationError(f"{text}: expected PARTITION:OFFSET, such as 1:716")
    return Position(int(partition), int(offset))


def opened(
    topic: str,
    to: str,
    table_format: str,
    catalog: str | None,
    namespace: str | None,
    store: tuple[str, ...],
) -> QuarantinedTopic:
    check_installed()
    from flintmq.lake.quarantine.open import open_quarantined
    from flintmq.lake.syncing.options import parse_store_settings

    return open_quarantined(
        to,
        topic,
        table_format,
        settings=parse_store_settings(store),
        catalog=catalog,
        namespace=namespace,
    )
