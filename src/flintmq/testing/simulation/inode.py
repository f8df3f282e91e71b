"""One file of the simulated disk: what a process reads, what is surely on the platter, and what is between.

Invariant: after `sync` both are the same; after `crashed` every sector is one that was written there, or
zeros, and never a mixture within a sector. Knows nothing of names and folders.
"""

from __future__ import annotations

from random import Random

from flintmq.effects import Buffer

SECTOR = 512


class Inode:
    """Content in the page cache over content on stable storage."""

    __slots__ = ("content", "dirty", "durable", "size_max", "size_min")

    def __init__(self, data: bytes = b"") -> None:
        self.content = bytearray(data)
        self.durable = bytearray(data)
        self.dirty: dict[int, list[bytes]] = {}
        """Sectors changed since the last sync, each with the versions that were overwritten unsynced."""
        self.size_min = self.size_max = len(data)

    def write(self, data: Buffer, position: int) -> None:
        if not len(data):
            return
        if position > len(self.content):
            self.resize(position)
        end = position + len(data)
        self._touch(position, end)
        self.content[position:end] = data
        self.size_max = max(self.size_max, len(self.content))

    def resize(self, size: int) -> None:
        before = len(self.content)
        if size < before:
            self._touch(size, before)
            del self.content[size:]
            self.size_min = min(self.size_min, size)
        else:
            self.content.extend(bytes(size - before))
            self.size_max = max(self.size_max, size)

    def sync(self) -> None:
        _fit(self.durable, len(self.content))
        for sector in self.dirty:
            self._store(sector)
        self.dirty.clear()
        self.size_min = self.size_max = len(self.content)

    def lose_dirty_pages(self, random: Random) -> None:
        """A failed fsync as Linux has it: some pages reach the disk, and all are marked clean all the same.

        The process goes on reading what it wrote, and a later sync that succeeds does not bring it back.
        """
        for sector in self.dirty:
            if sector * SECTOR < len(self.durable) and random.random() < 0.5:
                size = len(self.durable)
                self._store(sector)
                _fit(self.durable, size)
        self.dirty.clear()

    def crashed(self, random: Random) -> Inode:
        """The file that a machine may find after a power loss at this moment."""
        sizes = {len(self.durable), len(self.content), self.size_min, self.size_max}
        if len(sizes) == 1 and not self.dirty:
            return Inode(bytes(self.durable))
        size = random.choice((len(self.durable), len(self.content), random.randint(min(sizes), max(sizes))))
        found = bytearray(self.durable)
        _fit(found, size)
        # All old and all new are the likeliest mishaps in life, so they are not left to chance.
        written_share = random.choice((0.0, 1.0, 0.5, random.random()))
        for sector, overwritten in self.dirty.items():
            start = sector * SECTOR
            if start >= size or random.random() >= written_share:
                continue
            newest = bytes(self.content[start : start + SECTOR])
            version = random.choice((newest, newest, *overwritten)) if overwritten else newest
            end = min(start + SECTOR, size)
            found[start:end] = version.ljust(SECTOR, b"\0")[: end - start]
        return Inode(bytes(found))

    def _touch(self, start: int, end: int) -> None:
        """Mark the sectors of a range before it changes."""
        for sector in range(start // SECTOR, (end - 1) // SECTOR + 1):
            overwritten = self.dirty.get(sector)
            if overwritten is None:
                self.dirty[sector] = []
            else:
                overwritten.append(bytes(self.content[sector * SECTOR : (sector + 1) * SECTOR]))

    def _store(self, sector: int) -> None:
        start = sector * SECTOR
        chunk = self.content[start : start + SECTOR]
        self.durable[start : start + len(chunk)] = chunk


def _fit(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))
