"""A store in a folder of a file system that has hard links.

Invariant: a file is written under a draft's name, synced, and linked to its own: so it is whole wherever it is seen,
and of two that make the same one the second is told. A draft is locked by the process that writes it; a draft that
nobody locks is rubbish.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Final

import pyarrow as pa

from flintmq.lake.store.store import StoredFile, StoreError, ignore_file

_DRAFTS: Final = "_flintmq/drafts"
_NO_LINKS: Final = frozenset((errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS))
_COPIED: Final = frozenset((errno.EXDEV, errno.EMLINK))
"""Why a file cannot be linked, but can be copied."""
_DRAFT_ATTEMPTS: Final = 8
_CHECK_TO: Final = "Name a directory with --to"
_CHECK_DISK: Final = "See to the disk, then start again"
_ADVICE: Final[Mapping[int | None, str]] = {
    errno.ENOTDIR: f"A part of this path is a file. {_CHECK_TO}",
    errno.EEXIST: f"A part of this path is a file. {_CHECK_TO}",
    errno.EACCES: "This user may not read or write it. Change its permissions, or name another directory with --to",
    errno.EROFS: "The file system is read-only. Name another directory with --to",
}


class LocalFileStore:
    def __init__(self, directory: str) -> None:
        self._folder = directory

    @property
    def url(self) -> str:
        return self._folder

    @property
    def settings(self) -> Mapping[str, str]:
        return {}

    def get(self, path: str) -> bytes | None:
        try:
            with self._failing(path), open(self._name(path), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def size(self, path: str) -> int | None:
        try:
            with self._failing(path):
                return os.stat(self._name(path)).st_size
        except FileNotFoundError:
            return None

    def open(self, path: str) -> pa.NativeFile:
        try:
            with self._failing(path):
                return pa.memory_map(self._name(path))
        except FileNotFoundError as error:
            raise StoreError(f"{self._name(path)} is not there.") from error

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredFile]:
        top = self._name(prefix)
        for directory, folders, names in os.walk(top):
            below = os.path.relpath(directory, self._folder).replace(os.sep, "/")
            if below == _DRAFTS:
                folders.clear()
                continue
            for name in names:
                path = name if below == "." else f"{below}/{name}"
                if path <= after:
                    continue
                try:
                    found = os.stat(os.path.join(directory, name))
                except FileNotFoundError:
                    continue  # deleted since
                yield StoredFile(path, found.st_size, found.st_mtime_ns // 1_000_000)

    def put(self, path: str, data: bytes) -> None:
        with self.draft() as draft, self._failing(path):
            draft.write(data)
            self._sync(draft)
            self._make_folder(path)
            # The draft's name goes with it: there is nothing left to remove.
            os.replace(draft.name, self._name(path))
            _sync_folder(os.path.dirname(self._name(path)))

    def put_new(self, path: str, data: bytes) -> bool:
        with self.draft() as draft:
            with self._failing(path):
                draft.write(data)
            return self.publish(draft, path) or self.get(path) == data

    @contextmanager
    def draft(self) -> Iterator[BinaryIO]:
        try:
            with self._failing(_DRAFTS):
                self._make_folder(f"{_DRAFTS}/any")
                file = self._new_draft()
        except FileNotFoundError as error:
            raise StoreError(
                f"{self._folder}: the directory cannot be created ({error.strerror}). {_CHECK_TO}."
            ) from error
        try:
            yield file
        finally:
            # Removed before the lock goes, which closing does.
            try:
                os.unlink(file.name)
            except FileNotFoundError:
                pass
            try:
                file.close()
            except OSError:
                pass  # what could not be written has been told where it was flushed, or is not wanted

    def publish(self, draft: BinaryIO, path: str) -> bool:
        name = self._name(path)
        with self._failing(path):
            self._sync(draft)
            self._make_folder(path)
            try:
                os.link(draft.name, name)
            except FileExistsError:
                is_new = False
            else:
                is_new = True
            # The other's link may not be durable yet either.
            _sync_folder(os.path.dirname(name))
        return is_new

    def copy_to(
        self, url: str, files: Iterable[StoredFile], on_copied: Callable[[StoredFile], None] = ignore_file
    ) -> None:
        target, directories = LocalFileStore(url), set()
        for one in files:
            try:
                with target._failing(one.path):
                    target._make_folder(one.path)
                    target._link(self._name(one.path), one.path)
            except FileNotFoundError as error:
                raise StoreError(f"{self._name(one.path)} is not there.") from error
            directories.add(os.path.dirname(target._name(one.path)))
            on_copied(one)
        for directory in directories:
            _sync_folder(directory)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                with self._failing(path):
                    os.unlink(self._name(path))
            except FileNotFoundError:
                continue

    def remove_empty_directories(self) -> None:
        for directory, _, _ in os.walk(self._folder, topdown=False):
            try:
                os.rmdir(directory)
            except OSError:
                continue  # something is in it, or has come since

    def abandoned_drafts(self) -> Sequence[str]:
        found = []
        try:
            names = os.listdir(self._name(_DRAFTS))
        except FileNotFoundError:
            return []
        for name in names:
            path = f"{_DRAFTS}/{name}"
            try:
                with open(self._name(path), "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    found.append(path)
            except (FileNotFoundError, BlockingIOError):
                continue
        return found

    def _link(self, source: str, path: str) -> None:
        """Link a file from elsewhere; its bytes are copied where another file system holds them."""
        name = self._name(path)
        try:
            try:
                os.link(source, name)
            except FileExistsError:
                if os.path.samefile(source, name):
                    return
                os.unlink(name)
                os.link(source, name)
        except OSError as error:
            if error.errno not in _COPIED:
                raise
            with open(source, "rb") as content, self.draft() as draft:
                shutil.copyfileobj(content, draft)
                self.publish(draft, path)

    def _new_draft(self) -> BinaryIO:
        for _ in range(_DRAFT_ATTEMPTS):
            file = open(self._name(f"{_DRAFTS}/{uuid.uuid4().hex}"), "x+b")  # noqa: SIM115
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                continue
            # Between its making and its lock somebody may have taken it for rubbish.
            if os.fstat(file.fileno()).st_nlink:
                return file
            file.close()
        raise StoreError(f"Drafts in {self._name(_DRAFTS)} are removed as they are made; find out by whom.")

    def _sync(self, draft: BinaryIO) -> None:
        draft.flush()
        os.fsync(draft.fileno())

    def _make_folder(self, path: str) -> None:
        """With all that are above it, each durable before anything is in it."""
        missing, directory = [], os.path.dirname(self._name(path))
        while not os.path.isdir(directory):
            missing.append(directory)
            directory = os.path.dirname(directory)
        for one in reversed(missing):
            try:
                os.mkdir(one)
            except FileExistsError:
                pass
            _sync_folder(os.path.dirname(one))

    def _name(self, path: str) -> str:
        return os.path.join(self._folder, path)

    @contextmanager
    def _failing(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            name = self._name(path)
            if error.errno in _NO_LINKS:
                raise StoreError(
                    f"{name} cannot be made: the file system refuses hard links ({error.strerror}). Choose a "
                    "directory on one that has them, and whose files you own."
                ) from error
            raise StoreError(
                f"{name}: {error.strerror or error}. {_ADVICE.get(error.errno, _CHECK_DISK)}."
            ) from error


def _sync_folder(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
