"""Records from lines of text: reading the lines, and what of a line is key, value and headers.

A program that pipes records in slowly wants each written at once; one that pipes in a million wants large
batches. Both are served by telling the reader when the input pauses.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from flintmq.errors import ConfigurationError, FlintError
from flintmq.records.record import Header

_READ_BYTES = 256 * 1024


def read_lines(fd: int) -> Iterator[bytes | None]:
    """Yield each line without its end; None whenever the next would have to be waited for."""
    rest = b""
    while data := os.read(fd, _READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
        if not _has_more(fd):
            yield None
    if rest:
        yield rest.removesuffix(b"\r")


def _has_more(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


class UnreadableLine(FlintError):
    """A line that is not what the options promised."""


@dataclass(frozen=True, slots=True)
class RecordLineParser:
    key: bytes | None = None
    """The key of every record that has none of its own."""
    separator: bytes | None = None
    """Ends the key at the beginning of each line."""
    null: bytes | None = None
    """Stands for no value, or no key, at all: how a record of a compacted topic is deleted."""

    def read(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        """Key and value."""
        key, value = self.key, line
        if self.separator is not None:
            key, found, value = line.partition(self.separator)
            if not found:
                shown = line[:60].decode("utf-8", "replace")
                raise UnreadableLine(f"a line without the separator {self.separator.decode()!r}: {shown}")
        return self._or_null(key), self._or_null(value)

    def _or_null(self, text: bytes | None) -> bytes | None:
        return None if text == self.null else text


def parse_headers(texts: Iterable[str]) -> tuple[Header, ...]:
    """`name=value`; the same name may come again, as in Kafka."""
    headers: list[Header] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"--header {text}: expected NAME=VALUE")
        headers.append((name, value.encode()))
    return tuple(headers)
