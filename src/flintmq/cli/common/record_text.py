"""How a line of text becomes a record: key, value, headers. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flintmq.errors import ConfigurationError, FlintError
from flintmq.records.record import Header


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


def unescape(text: str) -> str:
    r"""`\t`, `\n`, `\r`, `\0` and `\\` as people type them in a shell; any other backslash stays one."""
    out, position = [], 0
    while position < len(text):
        pair = text[position : position + 2]
        if pair in _ESCAPES:
            out.append(_ESCAPES[pair])
            position += 2
        else:
            out.append(text[position])
            position += 1
    return "".join(out)


_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}
