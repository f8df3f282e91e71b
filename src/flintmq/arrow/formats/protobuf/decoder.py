"""Protobuf messages as rows: each value is one message of the decoder's type.

    decoder = ProtoDecoder(files, message="shop.Order")

Invariant: a value is a row if Protobuf reads it, with all required fields. Fields that the type does not know are
passed over, as everywhere with Protobuf: bytes that are another message may well be read as this one.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError

from flintmq.arrow.formats.column_builder import decode_each
from flintmq.arrow.formats.decoder import DecodedValues, SchemaError, Values
from flintmq.arrow.formats.protobuf.schema import columns_of

_REFUSALS: Final = (ValueError,)


class ProtoDecoder:
    def __init__(self, files: bytes, message: str) -> None:
        """`files` is a FileDescriptorSet in which each file comes after those that it imports."""
        self._files = files
        self._message = message
        self._type = _descriptor(files, message)
        self._columns = columns_of(self._type)
        self._class = message_factory.GetMessageClass(self._type)

    def __reduce__(self) -> tuple[type[ProtoDecoder], tuple[bytes, str]]:
        return ProtoDecoder, (self._files, self._message)

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
        return decode_each(self._columns, values, self._read, _REFUSALS)

    def _read(self, data: bytes) -> Any:
        try:
            message = self._class.FromString(data)
        except DecodeError:
            raise ValueError(f"the bytes are not a Protobuf message of type {self._message}") from None
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            raise ValueError(f"the message has no {missing}, which {self._message} requires")
        return message


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
