"""How a record is printed: a small template, or JSON. Pure.

A template is text with fields in braces: `{offset} {key} {value}\\n`. Keys, values and headers come out as
the bytes that they are, everything else as text.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from flintmq.cli.common.output import time_of
from flintmq.errors import ConfigurationError
from flintmq.records.record import Header, Record
from flintmq.settings.declaration import nearest

Printer = Callable[[str, int, Record], bytes]
"""Takes topic, partition and record."""

_FIELDS: dict[str, Printer] = {
    "topic": lambda topic, partition, record: topic.encode(),
    "partition": lambda topic, partition, record: b"%d" % partition,
    "offset": lambda topic, partition, record: b"%d" % record.offset,
    "timestamp": lambda topic, partition, record: b"%d" % record.timestamp,
    "time": lambda topic, partition, record: time_of(record.timestamp).encode(),
    "key": lambda topic, partition, record: _or_null(record.key),
    "value": lambda topic, partition, record: _or_null(record.value),
    "headers": lambda topic, partition, record: headers_text(record.headers),
    "size": lambda topic, partition, record: b"%d" % len(record.value or b""),
}
FIELDS = tuple(_FIELDS)

_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}
_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def compile_template(template: str) -> Printer:
    """ConfigurationError names the field that is not known."""
    text = unescape(template)
    parts: list[bytes | Printer] = []
    at = 0
    for match in _PART.finditer(text):
        parts.append(text[at : match.start()].encode())
        at = match.end()
        if match[0] in ("{{", "}}"):
            parts.append(match[0][:1].encode())
        elif match[1] is not None:
            parts.append(_field(match[1].strip()))
        else:
            raise ConfigurationError(f"--format: a single {match[0]}; write {match[0] * 2} for the character")
    parts.append(text[at:].encode())

    def render(topic: str, partition: int, record: Record) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(topic, partition, record) for part in parts)

    return render


def _field(name: str) -> Printer:
    found = _FIELDS.get(name)
    if found is None:
        guess = nearest(name, FIELDS)
        hint = f"did you mean {{{guess}}}?" if guess else "there are " + ", ".join(FIELDS)
        raise ConfigurationError(f"--format: no field {{{name}}}; {hint}")
    return found


def columns(names: Sequence[str]) -> Printer:
    """The fields separated by tabs, one record to a line."""
    return compile_template("\\t".join(f"{{{name}}}" for name in names) + "\\n")


def as_json(topic: str, partition: int, record: Record) -> bytes:
    """One line. Bytes that are not UTF-8 are given in base64, under a name that says so."""
    fields: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "time": time_of(record.timestamp),
    }
    fields |= json_bytes("key", record.key)
    fields |= json_bytes("value", record.value)
    fields["headers"] = json_headers(record.headers)
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def json_bytes(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {name + "_base64": base64.b64encode(content).decode()}


def json_headers(headers: Sequence[Header]) -> list[dict[str, str | None]]:
    return [{"name": name, **json_bytes("value", content)} for name, content in headers]


def headers_text(headers: Sequence[Header]) -> bytes:
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + _or_null(content) for name, content in headers
    )


def _or_null(content: bytes | None) -> bytes:
    return b"null" if content is None else content


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
