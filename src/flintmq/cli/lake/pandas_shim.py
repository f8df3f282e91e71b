"""Keeps pandas out of commands that do not use it.

Arrow looks for pandas when it makes its first array, to know a Series when it sees one, and the import takes a third
of a second. What asks Arrow for pandas by name, such as `to_pandas`, still gets it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_PANDAS = "pandas"


class _NoPandas:
    """Says that there is no pandas."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == _PANDAS:
            raise ModuleNotFoundError(f"{_PANDAS} is left out here", name=name)
        return None


def leave_out_pandas() -> None:
    """Let Arrow find no pandas when it looks; it looks by itself only once."""
    if _PANDAS in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.scalar(None)
    finally:
        sys.meta_path.remove(_NoPandas)
