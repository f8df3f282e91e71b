"""How committed offsets say that they are the progress of a lake table: by their metadata. Pure.

    set_offsets(client, "lake-orders", offsets, metadata=progress_metadata("s3://lake/orders"))

A sync commits so, and a broker that reads it knows which records a table does not have yet.
"""

from __future__ import annotations

from typing import Final

_PREFIX: Final = "flintmq-lake:"
_LOCATION_CHARS_MAX: Final = 1000
"""Well below the default of `offset.metadata.max.bytes`. The location is only shown."""


def progress_metadata(location: str) -> str:
    return _PREFIX + location[:_LOCATION_CHARS_MAX]


def is_progress_of_other(metadata: str, location: str) -> bool:
    """Whether the offset is the progress of another table than the one at `location`."""
    return table_of(metadata) is not None and metadata != progress_metadata(location)


def table_of(metadata: str) -> str | None:
    """The table's location; None if the offset is no table's progress."""
    return metadata.removeprefix(_PREFIX) if metadata.startswith(_PREFIX) else None
