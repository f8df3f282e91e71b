"""Modules that were compiled into a directory of their own, imported instead of the sources of the same names.

`./flint` compiles a checkout once for each state of its sources and names the directory in FLINTMQ_COMPILED, which
child processes inherit. Where the directory is gone, the sources run. A wheel has its libraries beside the sources
and needs nothing of this.
"""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

MODULES_FILE: Final = "modules.txt"
"""One line for each library, by its path in the directory."""


def use_libraries(directory: str) -> None:
    """Import the modules that `directory` has libraries for from there, from now on."""
    try:
        with open(f"{directory}/{MODULES_FILE}", encoding="utf-8") as file:
            paths = file.read().splitlines()
    except OSError:
        return
    sys.meta_path.insert(0, _LibraryFinder({_name_of(path): f"{directory}/{path}" for path in paths}))


def is_compiled() -> bool:
    """Return whether this process runs the compiled core, wherever its libraries are."""
    spec = find_spec("flintmq.records.batch")
    return spec is not None and spec.origin is not None and not spec.origin.endswith(".py")


def build_name() -> str:
    return "compiled" if is_compiled() else "uncompiled"


def _name_of(path: str) -> str:
    return path.partition(".")[0].replace("/", ".")


class _LibraryFinder:
    def __init__(self, files: dict[str, str]) -> None:
        self._files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._files.get(name)
        if file is None:
            return None
        spec = ModuleSpec(name, ExtensionFileLoader(name, file), origin=file)
        spec.has_location = True
        return spec
