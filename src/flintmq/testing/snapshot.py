"""All that a broker has on disk, taken while it runs and put back later: topics, records, settings, ids."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field

_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Held in memory and never changed: it may be restored many times, also into another broker."""

    files: Mapping[str, bytes] = field(repr=False)
    """Contents by path below the broker's folder."""
    folders: tuple[str, ...] = field(repr=False, default=())

    @property
    def size_bytes(self) -> int:
        return sum(len(content) for content in self.files.values())


def read_folder(path: str) -> Snapshot:
    """For the broker's thread, where nothing is appended meanwhile.

    Others may still be replacing files: each is there as it was before or after. ORDER: names are read in their
    order, so the metadata journal comes before the snapshot of it that may be replacing its entries.
    """
    files: dict[str, bytes] = {}
    folders: list[str] = []
    for directory, below, names in os.walk(path):
        below.sort()
        inside = os.path.relpath(directory, path)
        folders += [os.path.normpath(os.path.join(inside, name)) for name in below]
        for name in sorted(names):
            if name == _LOCK or name.endswith(".tmp"):
                continue
            try:
                with open(os.path.join(directory, name), "rb") as file:
                    files[os.path.normpath(os.path.join(inside, name))] = file.read()
            except FileNotFoundError:
                continue  # removed since it was listed: what it belonged to is being deleted
    return Snapshot(files, tuple(folders))


def write_folder(snapshot: Snapshot, path: str) -> None:
    """Make the folder hold the snapshot and nothing else. No broker may be using it."""
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        elif entry.name != _LOCK:
            os.remove(entry.path)
    for directory in snapshot.folders:
        os.makedirs(os.path.join(path, directory), exist_ok=True)
    for name, content in snapshot.files.items():
        with open(os.path.join(path, name), "wb") as file:
            file.write(content)
