"""CRC32C, as batches, snapshots and the journal carry it.

The package `crc32c` asks for its own version when it is imported, and what that imports in turn takes tens of
milliseconds of the few hundred that a broker needs to start. So its extension is loaded by itself where it is found;
where it is not, the package is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import cast

Crc32c = Callable[..., int]


def _extension() -> Crc32c | None:
    package = find_spec("crc32c")
    if package is None or not package.submodule_search_locations:
        return None
    spec = PathFinder.find_spec("_crc32c", list(package.submodule_search_locations))
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Crc32c | None", getattr(module, "crc32c", None))


def _package() -> Crc32c:
    from crc32c import crc32c

    return crc32c


crc32c: Crc32c = _extension() or _package()
"""Of bytes, and of the checksum of what came before them (0 at first)."""
