"""Where a table's files are: a folder or a bucket, with the few operations that a table needs of it.

    store = open_store("s3://lake/orders", {"endpoint": "http://127.0.0.1:9000"})
    with store.draft() as draft:
        pq.write_table(rows, draft)
        store.publish(draft, "data/…parquet")       False if it is there already; then it is left as it is

Invariant: what `publish` and `put_new` make appears whole or not at all, is never changed, and is durable when they
return. Whether it was made is known when they return: after an answer that did not arrive they look. A store can be
sent to workers; credentials that it took from the environment do not go with it.
This module must not know what is in the files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, NamedTuple, Protocol

import pyarrow as pa

from flintmq.lake.tables.table import TableError


class StoreError(TableError):
    """The store failed, or refused; the message says which file, and why."""


class StoredFile(NamedTuple):
    path: str
    size: int
    modified_ms: int


def ignore_file(file: StoredFile) -> None:
    """Do nothing with a file that was copied."""


class Store(Protocol):
    @property
    def url(self) -> str:
        """The folder's path, or the URL; without a slash at the end."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Those that were given and those that the environment named, without the environment's credentials."""

    def get(self, path: str) -> bytes | None:
        """None if there is no such file."""

    def size(self, path: str) -> int | None:
        """None if there is no such file."""

    def open(self, path: str) -> pa.NativeFile:
        """For reading parts of it; StoreError if there is no such file."""

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredFile]:
        """All files below a folder, however deep, whose path is behind `after`; in no order."""

    def put(self, path: str, data: bytes) -> None:
        """Over what is there."""

    def put_new(self, path: str, data: bytes) -> bool:
        """Whether the file is this one: False if there is another.

        `data` must have something that nobody else writes, or one's own can not be told from another's.
        """

    def draft(self) -> AbstractContextManager[BinaryIO]:
        """A file to write to, gone at the end, unless it was published."""

    def publish(self, draft: BinaryIO, path: str) -> bool:
        """The draft under its name: False if there is a file of that name; it may be this one, from a lost answer."""

    def copy_to(
        self, url: str, files: Iterable[StoredFile], on_copied: Callable[[StoredFile], None] = ignore_file
    ) -> None:
        """Copy files under the same paths to a location in the same file system or bucket, over what is there.

        The copies are durable when this returns. The service or the file system makes them, where it can.
        """

    def delete(self, paths: Iterable[str]) -> None:
        """Those that are there."""

    def remove_empty_directories(self) -> None:
        """Also the store's own; nothing to do where there are no directories."""

    def abandoned_drafts(self) -> Sequence[str]:
        """Drafts of processes that died, for `delete`."""


def open_store(url: str, settings: Mapping[str, str] | None = None) -> Store:
    """Of a folder's path, `file://…`, `s3://…`, `gs://…` or `az://…`.

    Settings are named as the provider's variables, without their prefix: `AWS_REGION` is `region`.
    """
    from flintmq.lake.store.local import LocalFileStore

    scheme, separator, rest = url.partition("://")
    if not separator:
        return LocalFileStore(os.path.abspath(os.path.expanduser(url)))
    if scheme == "file":
        return LocalFileStore(os.path.abspath("/" + rest.lstrip("/")))
    # Only where it is needed: a directory does without the library.
    from flintmq.lake.store.objects import ObjectStore
    from flintmq.lake.store.providers import normalized, provider_of

    provider = provider_of(scheme)
    if provider is None:
        raise StoreError(
            f"{url}: there is no store for {scheme}://; give a directory, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX "
            "or az://CONTAINER/PREFIX."
        )
    address, given = normalized(provider, rest, settings or {})
    return ObjectStore(address, given, provider)


def join(url: str, *names: str) -> str:
    """A place below another."""
    return "/".join((url.rstrip("/"), *names))


def name_of(url: str) -> str:
    """Return the last part of a location."""
    return url.rstrip("/").rpartition("/")[2]
