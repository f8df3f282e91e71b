"""Protobuf messages behind a frame: before each stands its message's place in the schema's file.

Invariant: only values of the one message that became the columns are rows; another message of the same file is bad,
and its error names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from flintmq.arrow.formats.decoder import DecodedValues, RowError, SchemaError, Values
from flintmq.arrow.formats.framing import unpack_indexes
from flintmq.arrow.formats.protobuf.decoder import ProtoDecoder, messages_of
from flintmq.arrow.formats.protobuf.descriptors import compile_text


class IndexedDecoder:
    def __init__(self, text: str, references: Mapping[str, str], *, message: str | None) -> None:
        """`message` is the full name; None is the file's first message."""
        files = compile_text(text, references.get)
        names = messages_of(files)
        if not names:
            raise SchemaError("The Protobuf schema has no message")
        self._decoder = ProtoDecoder(files, names[0] if message is None else message)
        self._places = _places(files)

    @property
    def schema(self) -> pa.Schema:
        return self._decoder.schema

    def decode(self, values: Values) -> DecodedValues:
        bodies: list[bytes | None] = []
        errors: list[RowError] = []
        for row, value in enumerate(values.to_pylist()):
            body = None
            if value is not None:
                try:
                    body = self._body(value)
                except ValueError as why:
                    errors.append(RowError(row, str(why)))
            bodies.append(body)
        decoded = self._decoder.decode(pa.array(bodies, pa.binary()))
        return DecodedValues(decoded.rows, sorted(errors + decoded.errors))

    def _body(self, value: bytes) -> bytes:
        indexes, at = unpack_indexes(value)
        message = self._places.get(indexes)
        if message != self._decoder.message:
            there = message or f"at {list(indexes)} in its file, where there is none"
            raise ValueError(f"the message is {there}; the columns are those of {self._decoder.message}")
        return value[at:]


def _places(files: bytes) -> dict[tuple[int, ...], str]:
    """Messages by their places in the file, as Confluent's serializers count: without the entries of maps."""
    file = FileDescriptorSet.FromString(files).file[-1]
    places: dict[tuple[int, ...], str] = {}
    waiting: list[tuple[tuple[int, ...], str, Any]] = [
        ((), f"{file.package}." if file.package else "", file.message_type)
    ]
    while waiting:
        place, prefix, messages = waiting.pop()
        declared = [one for one in messages if not one.options.map_entry]
        for index, one in enumerate(declared):
            places[*place, index] = prefix + one.name
            waiting.append(((*place, index), f"{prefix}{one.name}.", one.nested_type))
    return places
