"""Protobuf messages as rows: each value is one message of the decoder's type.

    decoder = ProtoDecoder(files, message="shop.Order")

Invariant: a value is a row if Protobuf reads it, with all required fields. Fields that the type does not know are
passed over or counted, by their numbers: bytes that are another message may well be read as this one.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from flintmq.arrow.formats.column_builder import decode_each
from flintmq.arrow.formats.decoder import DecodedValues, SchemaError, Values
from flintmq.arrow.formats.extra_fields import PASSED_OVER, ExtraFields, Extras
from flintmq.arrow.formats.protobuf.schema import columns_of

_REFUSALS: Final = (ValueError,)


class ProtoDecoder:
    def __init__(self, files: bytes, message: str, extras: Extras = PASSED_OVER) -> None:
        """`files` is a FileDescriptorSet in which each file comes after those that it imports."""
        self._files = files
        self._message = message
        self._extras = extras
        self._type = _descriptor(files, message)
        self._columns = columns_of(self._type)
        self._class = message_factory.GetMessageClass(self._type)

    def __reduce__(self) -> tuple[type[ProtoDecoder], tuple[bytes, str, Extras]]:
        return ProtoDecoder, (self._files, self._message, self._extras)

    @property
    def message(self) -> str:
        return self._message

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(list(self._columns.type))

    @property
    def files(self) -> bytes:
        """The schema with all that it imports, as a FileDescriptorSet: `open_decoder` takes it too."""
        return self._files

    def decode(self, values: Values) -> DecodedValues:
        if not self._extras.are_counted:
            return decode_each(self._columns, values, self._read, _REFUSALS)
        fields = ExtraFields()

        def read(data: bytes) -> Any:
            message = self._read(data)
            size = message.ByteSize()
            message.DiscardUnknownFields()
            if message.ByteSize() != size:
                fields.add(sorted(unknown_fields(self._read(data))))
            return message

        return decode_each(self._columns, values, read, _REFUSALS)._replace(extra=fields or None)

    def _read(self, data: bytes) -> Any:
        try:
            message = self._class.FromString(data)
        except DecodeError:
            raise ValueError(f"the bytes are not a Protobuf message of type {self._message}") from None
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            raise ValueError(f"the message has no {missing}, which {self._message} requires")
        return message


def unknown_fields(message: Any, above: str = "") -> set[str]:
    """Return the fields that the type does not know: `field 7`, or within another message `place.field 7`."""
    found = {f"{above}field {one.field_number}" for one in UnknownFieldSet(message)}
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            inner = value.values() if field.message_type.fields_by_name["value"].message_type else ()
        else:
            inner = value if field.is_repeated else (value,)
        for one in inner:
            found |= unknown_fields(one, f"{above}{field.name}.")
    return found


def messages_of(files: bytes) -> list[str]:
    """The full names of the last file's messages, outermost first, each before those inside of it."""
    found = FileDescriptorSet.FromString(files)
    if not found.file:
        return []
    last = found.file[-1]
    names: list[str] = []

    def add(messages: Any, prefix: str) -> None:
        for one in messages:
            if not one.options.map_entry:
                names.append(prefix + one.name)
                add(one.nested_type, f"{prefix}{one.name}.")

    add(last.message_type, f"{last.package}." if last.package else "")
    return names


def _descriptor(files: bytes, message: str) -> Descriptor:
    # A pool of its own: two topics may have different types of the same name.
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in FileDescriptorSet.FromString(files).file:
            pool.Add(file)
        return pool.FindMessageTypeByName(message)
    except KeyError:
        there = ", ".join(messages_of(files)[:20]) or "none"
        raise SchemaError(f"There is no Protobuf message {message}; there are: {there}") from None
    except TypeError as why:
        raise SchemaError(f"The Protobuf descriptors are not valid: {str(why).strip()}") from None
