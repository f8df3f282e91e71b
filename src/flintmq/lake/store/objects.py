"""A store in a bucket or container that knows conditional puts, as S3, Google Cloud Storage and Azure do.

Invariant: a put whose answer was lost is taken neither for a conflict nor for done without a look at what is there.
Attempts are bounded; between them the library waits.
"""

from __future__ import annotations

import io
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import Any, BinaryIO, Final

import obstore
import pyarrow as pa
from obstore import exceptions

from flintmq.lake.store.providers import Provider
from flintmq.lake.store.store import StoredFile, StoreError, ignore_file, open_store

_PUT_ATTEMPTS: Final = 3
_DELETED_AT_ONCE: Final = 1000
_COPIED_AT_ONCE: Final = 16
_RETRIES: Final = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=5),
        "base": 2,
    },
}
_DEFAULTS: Final = {"timeout": "300s", "connect_timeout": "10s"}
"""Of a whole request: a large file on a slow line needs its time."""
_FINAL_FAILURES: Final = (
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
    exceptions.NotSupportedError,
    exceptions.InvalidPathError,
    exceptions.UnknownConfigurationKeyError,
)


class ObjectStore:
    def __init__(self, url: str, settings: Mapping[str, str], provider: Provider) -> None:
        self._url = url
        self._provider = provider
        self._settings = provider.resolved(settings)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, dict[str, str]]]:
        return open_store, (self._url, self._settings)

    @property
    def url(self) -> str:
        return self._url

    @property
    def settings(self) -> Mapping[str, str]:
        return self._settings

    def get(self, path: str) -> bytes | None:
        try:
            with self._failing(path):
                return bytes(obstore.get(self._bucket, path).bytes())
        except FileNotFoundError:
            return None

    def size(self, path: str) -> int | None:
        try:
            with self._failing(path):
                return int(obstore.head(self._bucket, path)["size"])
        except FileNotFoundError:
            return None

    def open(self, path: str) -> pa.NativeFile:
        try:
            with self._failing(path):
                size = int(obstore.head(self._bucket, path)["size"])
                return pa.PythonFile(_Reader(self, path, size), mode="r")
        except FileNotFoundError as error:
            raise StoreError(f"{self._url}/{path} is not there.") from error

    def range(self, path: str, start: int, length: int) -> memoryview:
        with self._failing(path):
            return memoryview(obstore.get_range(self._bucket, path, start=start, length=length))

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredFile]:
        with self._failing(prefix):
            for found in obstore.list(self._bucket, prefix=prefix or None, offset=after or None):
                for one in found:
                    yield StoredFile(one["path"], one["size"], int(one["last_modified"].timestamp() * 1000))

    def put(self, path: str, data: bytes) -> None:
        with self._failing(path):
            obstore.put(self._bucket, path, data, use_multipart=False)

    def put_new(self, path: str, data: bytes) -> bool:
        failure: Exception | None = None
        for _ in range(_PUT_ATTEMPTS):
            try:
                with self._failing(path):
                    obstore.put(self._bucket, path, data, mode="create")
                return True
            except exceptions.AlreadyExistsError:
                # Perhaps by an attempt of ours whose answer was lost.
                return self.get(path) == data
            except StoreError as error:
                if isinstance(error.__cause__, _FINAL_FAILURES):
                    raise
                failure = error
            if (found := self._look(path)) is not None:
                return found == data
        raise StoreError(
            f"{self._url}/{path}: it is not known whether it was written, and it may still appear. Start again when "
            f"the store answers; what is there then counts. {failure}"
        ) from failure

    @contextmanager
    def draft(self) -> Iterator[BinaryIO]:
        # Without a name: nothing stays behind, however this process ends.
        with tempfile.TemporaryFile("w+b") as file:
            yield file

    def publish(self, draft: BinaryIO, path: str) -> bool:
        draft.flush()
        size = os.fstat(draft.fileno()).st_size
        size_max = self._provider.upload_bytes_max
        if not 0 < size <= size_max:
            raise StoreError(
                f"{self._url}/{path}: {size} bytes cannot be put at once; up to {size_max} can: write smaller files."
            )
        # Mapped, so that a large file is not copied into memory.
        with mmap.mmap(draft.fileno(), size, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
            try:
                with self._failing(path):
                    obstore.put(self._bucket, path, view, mode="create")
                return True
            except exceptions.AlreadyExistsError:
                return False

    def copy_to(
        self, url: str, files: Iterable[StoredFile], on_copied: Callable[[StoredFile], None] = ignore_file
    ) -> None:
        bucket, source = _parts(self._url)
        _, target = _parts(url)
        # Without a prefix: source and target have different ones.
        whole = self._open(bucket, None)

        def copy(one: StoredFile) -> StoredFile:
            try:
                with self._failing(one.path):
                    obstore.copy(whole, f"{source}/{one.path}", f"{target}/{one.path}")
            except FileNotFoundError as error:
                raise StoreError(f"{self._url}/{one.path} is not there.") from error
            return one

        pool = ThreadPoolExecutor(_COPIED_AT_ONCE)
        try:
            for done in as_completed([pool.submit(copy, one) for one in files]):
                on_copied(done.result())
        finally:
            pool.shutdown(cancel_futures=True)

    def delete(self, paths: Iterable[str]) -> None:
        wanted = [*paths]
        for start in range(0, len(wanted), _DELETED_AT_ONCE):
            some = wanted[start : start + _DELETED_AT_ONCE]
            try:
                with self._failing(some[0]):
                    obstore.delete(self._bucket, some)
            except FileNotFoundError:
                continue

    def remove_empty_directories(self) -> None:
        """Nothing to do: a bucket has files alone."""

    def abandoned_drafts(self) -> Sequence[str]:
        return []

    @cached_property
    def _bucket(self) -> Any:
        bucket, prefix = _parts(self._url)
        return self._open(bucket, prefix or None)

    def _open(self, bucket: str, prefix: str | None) -> Any:
        config: Any = {**_DEFAULTS, **self._settings}
        retries: Any = _RETRIES
        with self._failing(""):
            return self._provider.open(bucket, prefix=prefix, config=config, retry_config=retries)

    def _look(self, path: str) -> bytes | None:
        try:
            return self.get(path)
        except StoreError:
            return None

    @contextmanager
    def _failing(self, path: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, exceptions.AlreadyExistsError):
            raise
        except (exceptions.BaseError, OSError, ValueError) as error:
            # What follows the first line is for who debugs the library.
            reason = str(error).partition("\n")[0].rstrip(".")
            bucket = self._url.partition("://")[2].partition("/")[0]
            # A missing file is FileNotFoundError; what else is not found is the bucket.
            missing = f" Does {bucket} exist?" if "404" in reason else ""
            raise StoreError(
                f"{self._url}/{path}: {reason}.{missing} Check the store, its address and its credentials "
                f"({self._provider.variables} in the environment, or --store NAME=VALUE), then start again."
            ) from error


def _parts(url: str) -> tuple[str, str]:
    """Return the bucket and the prefix of a URL."""
    bucket, _, prefix = url.partition("://")[2].partition("/")
    return bucket, prefix


class _Reader(io.RawIOBase):
    """A file of the bucket, a request for each read: who reads Parquet asks for whole column chunks."""

    def __init__(self, store: ObjectStore, path: str, size: int) -> None:
        self._store, self._path, self._size = store, path, size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        into = memoryview(buffer).cast("B")
        length = min(len(into), self._size - self._position)
        if length <= 0:
            return 0
        into[:length] = self._store.range(self._path, self._position, length)
        self._position += length
        return length
