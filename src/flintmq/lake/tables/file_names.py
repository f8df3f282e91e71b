"""Where the files that a sync writes lie, and the digest in their names. Pure.

    data/timestamp_day=2026-11-15/<name>        the name is a FileName

Invariant: the path follows from what is in the file alone. The digest stands for everything beside the offsets that
decides about its bytes: schema, shape, settings of the writer. Who tries again finds the same path.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final
from urllib.parse import quote

from flintmq.lake.tables.data_file import FileName

DATA: Final = "data"
NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, Spark and DuckDB take for no value."""
FOLDER_BYTES_MAX: Final = 240
"""File systems take 255 for one name."""

_DIGITS: Final = 16

PartitionValues = tuple[tuple[str, str | None], ...]


def data_path(name: FileName, values: PartitionValues = ()) -> str:
    return "/".join((DATA, *(folder(field, value) for field, value in values), str(name)))


def folder(field: str, value: str | None) -> str:
    """`field=value`, escaped as engines that know Hive's folders expect it."""
    return f"{quote(field, safe='')}={NULL if value is None else quote(value, safe='')}"


def digest_of(*parts: object) -> str:
    """Of values that JSON can hold."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
