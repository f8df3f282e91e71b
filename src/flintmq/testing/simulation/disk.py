"""A file system in memory that can lose its power.

`crash()` answers with a disk that a machine may find after a power loss at this moment; the disk it is asked
of goes on unharmed, so that one run can be crashed at every step, several times. The rules are POSIX's, not
kinder: a file's content is safe after its `sync`, its name after `sync_dir` of its folder, names that are not
safe are lost from the newest backwards, contents sector by sector. About half of the seeds behave like a
journaling file system instead, where any sync makes every earlier name safe. `kill()` is the death of the
process alone: everything written is there, and what was unsynced still is.

Invariant: all choices come from the seed. It must not know what is stored in it.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

from flintmq.effects import Buffer
from flintmq.testing.simulation.inode import SECTOR, Inode

__all__ = ["SECTOR", "FaultyOperation", "SimulatedDisk", "SimulatedFile"]

FaultyOperation = Literal["read", "write", "sync", "sync_dir"]


class _Directory:
    """Names as the process sees them; those that a crash leaves are kept beside."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}


_Node = _Directory | Inode
_NameChange = tuple[_Directory, str, _Node | None]
_Steps = list[tuple[_NameChange, ...]]


@dataclass(slots=True)
class _Fault:
    operation: FaultyOperation
    countdown: int
    code: int


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


class SimulatedFile:
    """One open file; it stays usable after its name is gone, as in POSIX."""

    fd = -1

    def __init__(self, disk: SimulatedDisk, inode: Inode, path: str, *, writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._writable = writable
        self._open = True

    def pwrite(self, data: Buffer, position: int) -> None:
        self._usable(writing=True)
        self._disk._write(self._inode, data, position, self.path)

    def pread(self, size: int, position: int) -> bytes:
        self._usable()
        self._disk._fault("read", self.path)
        return bytes(self._inode.content[position : position + size])

    def size(self) -> int:
        self._usable()
        return len(self._inode.content)

    def truncate(self, size: int) -> None:
        self._usable(writing=True)
        self._disk._resize(self._inode, size, self.path)

    def allocate(self, size: int) -> None:
        self._usable(writing=True)
        if size > len(self._inode.content):
            self._disk._resize(self._inode, size, self.path)

    def sync(self) -> None:
        self._usable()
        self._disk._sync(self._inode, self.path)

    def close(self) -> None:
        self._open = False

    def _usable(self, *, writing: bool = False) -> None:
        if not self._open or (writing and not self._writable):
            raise _error(errno.EBADF, self.path)


class SimulatedDisk:
    """`effects.Disk` in memory. Leading slashes mean nothing: `/a/b` and `a/b` are one file."""

    def __init__(self, seed: int, *, journaling: bool | None = None, capacity_bytes: int = 1 << 40) -> None:
        self._random = Random(seed)
        variant = self._random.random() < 0.5
        self.journaling = variant if journaling is None else journaling
        """Whether any sync makes all earlier names durable, as many file systems do."""
        self.capacity_bytes = capacity_bytes
        self.free_bytes = capacity_bytes
        """Lower it to see ENOSPC: a write that does not fit is done in part."""
        self.observer: Callable[[str, str], object] | None = None
        """Called with the operation and its path BEFORE anything changes: the place to crash or count."""
        self.may_fail: Callable[[], bool] = lambda: True
        """Asked when a fault is due; where it says no, the operation succeeds."""
        self._faults: list[_Fault] = []
        self._root = _Directory()
        self._pending: _Steps = []

    # -- the Disk effect

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> SimulatedFile:
        directory, name = self._parent(path)
        node = directory.entries.get(name) if name else directory
        if node is None:
            if not create:
                raise _error(errno.ENOENT, path)
            node = Inode()
            self._change_names("create", path, (directory, name, node))
        if isinstance(node, _Directory):
            raise _error(errno.EISDIR, path)
        return SimulatedFile(self, node, path, writable=writable)

    def list(self, path: str) -> list[str]:
        return sorted(self._directory(path).entries)

    def exists(self, path: str) -> bool:
        try:
            self._node(path)
        except OSError:
            return False
        return True

    def size(self, path: str) -> int:
        return len(self._inode(path).content)

    def makedirs(self, path: str) -> None:
        directory = self._root
        for name in _names(path):
            node = directory.entries.get(name)
            if node is None:
                node = _Directory()
                self._change_names("makedirs", path, (directory, name, node))
            if isinstance(node, Inode):
                raise _error(errno.EEXIST, path)
            directory = node

    def remove(self, path: str) -> None:
        inode = self._inode(path)
        directory, name = self._parent(path)
        self._change_names("remove", path, (directory, name, None))
        self.free_bytes += len(inode.content)

    def remove_tree(self, path: str) -> None:
        for name in self.list(path):
            inside = f"{path}/{name}"
            if isinstance(self._node(inside), _Directory):
                self.remove_tree(inside)
            else:
                self.remove(inside)
        directory, name = self._parent(path)
        self._change_names("remove_tree", path, (directory, name, None))

    def rename(self, source: str, target: str) -> None:
        node = self._node(source)
        source_folder, source_name = self._parent(source)
        target_folder, target_name = self._parent(target)
        replaced = target_folder.entries.get(target_name)
        if replaced is node:
            return
        if isinstance(replaced, _Directory):
            if isinstance(node, Inode):
                raise _error(errno.EISDIR, target)
            if replaced.entries:
                raise _error(errno.ENOTEMPTY, target)
        elif replaced is not None and isinstance(node, _Directory):
            raise _error(errno.ENOTDIR, target)
        self._change_names(
            "rename", target, (source_folder, source_name, None), (target_folder, target_name, node)
        )
        if isinstance(replaced, Inode):
            self.free_bytes += len(replaced.content)

    def sync_dir(self, path: str) -> None:
        directory = self._directory(path)
        self._observe("sync_dir", path)
        self._fault("sync_dir", path)
        self._settle(directory)

    def sync_all(self) -> None:
        """As in life, a failure here is told to nobody."""
        self._observe("sync_all", "")

        def write_back(directory: _Directory) -> None:
            for name, node in directory.entries.items():
                if isinstance(node, _Directory):
                    write_back(node)
                    continue
                try:
                    self._fault("sync", name)
                except OSError:
                    node.lose_dirty_pages(self._random)
                else:
                    node.sync()

        write_back(self._root)
        self._settle(None)

    def usage(self, path: str) -> tuple[int, int]:
        self._node(path)
        return self.capacity_bytes, self.free_bytes

    # -- mishaps

    def crash(self) -> SimulatedDisk:
        """A disk as found after a power loss now. Another call may find another one."""
        names: dict[_Directory, dict[str, _Node]] = {}
        kept = self._random.choice((0, len(self._pending), self._random.randint(0, len(self._pending))))
        for step in self._pending[:kept]:
            for directory, name, node in step:
                _set_entry(names.setdefault(directory, dict(directory.durable)), name, node)

        def found(directory: _Directory) -> _Directory:
            copied = _Directory()
            for name, node in names.get(directory, directory.durable).items():
                copied.durable[name] = (
                    found(node) if isinstance(node, _Directory) else node.crashed(self._random)
                )
            copied.entries = dict(copied.durable)
            return copied

        return self._successor(found(self._root), [])

    def kill(self) -> SimulatedDisk:
        """The same disk for the next process, which starts with nothing more synced than this one had."""
        root, pending = copy.deepcopy((self._root, self._pending))
        return self._successor(root, pending)

    def fail(self, operation: FaultyOperation, *, nth: int = 1, code: int = errno.EIO) -> None:
        """Make the nth operation of this kind from now on fail, once.

        A failed write has written some of its bytes; a failed sync has lost the dirty pages.
        """
        self._faults.append(_Fault(operation, nth, code))

    @property
    def has_faults(self) -> bool:
        """Whether a failure that `fail` has asked for is still to come."""
        return bool(self._faults)

    def mend(self) -> None:
        """Let no operation fail any more, as far as `fail` has asked for it."""
        self._faults.clear()

    def flip(self, path: str, position: int, mask: int = 0x01) -> None:
        """Damage one stored byte, unnoticed."""
        inode = self._inode(path)
        inode.content[position] ^= mask
        if position < len(inode.durable):
            inode.durable[position] ^= mask

    # -- what the files need

    def _write(self, inode: Inode, data: Buffer, position: int, path: str) -> None:
        self._observe("write", path)
        data = memoryview(data).cast("B")
        try:
            self._fault("write", path)
        except OSError:
            self._grow(inode, data[: self._random.randint(0, len(data))], position)
            raise
        if not self._grow(inode, data, position):
            raise _error(errno.ENOSPC, path)

    def _grow(self, inode: Inode, data: memoryview, position: int) -> bool:
        """Write what fits into the free space; whether that was all of it."""
        room = max(0, len(inode.content) + self.free_bytes - position)
        before = len(inode.content)
        inode.write(bytes(data[:room]), position)
        self.free_bytes -= len(inode.content) - before
        return len(data) <= room

    def _resize(self, inode: Inode, size: int, path: str) -> None:
        self._observe("truncate", path)
        growth = size - len(inode.content)
        if growth > self.free_bytes:
            raise _error(errno.ENOSPC, path)
        inode.resize(size)
        self.free_bytes -= growth

    def _sync(self, inode: Inode, path: str) -> None:
        self._observe("sync", path)
        try:
            self._fault("sync", path)
        except OSError:
            inode.lose_dirty_pages(self._random)
            raise
        inode.sync()
        if self.journaling:
            self._settle(None)

    def _observe(self, operation: str, path: str) -> None:
        if self.observer is not None:
            self.observer(operation, path)

    def _fault(self, operation: FaultyOperation, path: str) -> None:
        for fault in self._faults:
            if fault.operation == operation:
                fault.countdown -= 1
                if not fault.countdown:
                    self._faults.remove(fault)
                    if self.may_fail():
                        raise _error(fault.code, path)
                    return

    # -- names

    def _change_names(self, operation: str, path: str, *step: _NameChange) -> None:
        """One atomic change of names: seen at once, durable later."""
        self._observe(operation, path)
        for directory, name, node in step:
            _set_entry(directory.entries, name, node)
        self._pending.append(step)

    def _settle(self, directory: _Directory | None) -> None:
        """Make the changes of this folder's names durable, after those they rest on; of all, without one."""
        everything = directory is None or self.journaling
        chosen: list[int] = []
        touched: set[tuple[_Directory, str]] = set()
        for index in reversed(range(len(self._pending))):
            step = self._pending[index]
            if everything or any(where is directory or (where, name) in touched for where, name, _ in step):
                chosen.append(index)
                touched.update((where, name) for where, name, _ in step)
        for index in reversed(chosen):
            for where, name, node in self._pending[index]:
                _set_entry(where.durable, name, node)
        for index in chosen:
            del self._pending[index]

    def _successor(self, root: _Directory, pending: _Steps) -> SimulatedDisk:
        disk = SimulatedDisk(
            self._random.getrandbits(64), journaling=self.journaling, capacity_bytes=self.capacity_bytes
        )
        disk._root = root
        disk._pending = pending
        disk.free_bytes = self.free_bytes
        return disk

    def _node(self, path: str) -> _Node:
        node: _Node = self._root
        for name in _names(path):
            if isinstance(node, Inode):
                raise _error(errno.ENOTDIR, path)
            if name not in node.entries:
                raise _error(errno.ENOENT, path)
            node = node.entries[name]
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._node(path)
        if isinstance(node, Inode):
            raise _error(errno.ENOTDIR, path)
        return node

    def _inode(self, path: str) -> Inode:
        node = self._node(path)
        if isinstance(node, _Directory):
            raise _error(errno.EISDIR, path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        names = _names(path)
        return self._directory("/".join(names[:-1])), names[-1] if names else ""


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name and name != "."]


def _set_entry(entries: dict[str, _Node], name: str, node: _Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node
