"""The names that a table can be given. Pure.

A name is one of a directory and of an entry in a catalog, and the tables that go with a table have it with a suffix.
"""

from __future__ import annotations

import re
from typing import Final

from flintmq.errors import ConfigurationError
from flintmq.lake.latest.latest import SUFFIX as LATEST_SUFFIX
from flintmq.lake.syncing.options import QUARANTINE_SUFFIX

SUFFIXES: Final = (LATEST_SUFFIX, QUARANTINE_SUFFIX)
"""Of the tables that go with a table."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CHARS_MAX: Final = 255 - max(map(len, SUFFIXES))
_CATALOG: Final = "catalog.db"
"""The file that Iceberg tables in a directory have beside them, and how its journals begin."""


def check_names(topic: str, name: str) -> None:
    """Raise ConfigurationError if a topic's table cannot have this name."""
    for suffix in SUFFIXES:
        if topic.endswith(suffix):
            raise ConfigurationError(
                f"{topic} goes with the table of {topic.removesuffix(suffix)}, and is renamed with it"
            )
        if name.endswith(suffix):
            raise ConfigurationError(
                f"{name!r} is no name for a table: names that end in {suffix} are those of tables that go with "
                "another one"
            )
    if not _NAME.fullmatch(name) or len(name) > _CHARS_MAX or name.lower().startswith(_CATALOG):
        raise ConfigurationError(
            f"{name!r} is no name for a table: it is made of letters, digits, '.', '_' and '-', begins with a letter "
            f"or a digit, has at most {_CHARS_MAX} characters, and does not begin with {_CATALOG}"
        )
