"""Requests of any API and version that name one of everything, and the error codes in an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flintmq.protocol import messages
from flintmq.protocol.codegen.schema import Field
from flintmq.protocol.codegen.structures import Message, Struct
from flintmq.testing.error_responses import CODES

TOPIC_ID = bytes(range(16))
SAMPLES: dict[str, Any] = {
    "bytes": b"x",
    "string": "orders",
    "int32": 7,
    "int8": 2,
    "uuid": TOPIC_ID,
    "records": None,
    "bool": False,
}


def sample_request(key: int, version: int) -> Any:
    cls = messages.request_of(key)
    return sample(cls, cls, cls.schema.name, version)


def sample(cls: type[Struct], message: type[Message], struct: str, version: int) -> Any:
    """A struct with one element in every list, and a value in every field that the version has."""
    value = cls()
    for field in message.schema.structs[struct]:
        if field.present(version):
            setattr(value, field.name, sample_field(field, message, version))
    return value


def sample_field(field: Field, message: type[Message], version: int) -> Any:
    one: Any
    if field.struct:
        one = sample(getattr(message, field.struct), message, field.struct, version)
    else:
        one = SAMPLES.get(field.kind, 0)
    return [one] if field.array else one


def codes_in(value: Struct) -> Iterator[int]:
    for name in value.__slots__:
        inner = getattr(value, name)
        if name in CODES:
            yield inner
        elif isinstance(inner, list):
            for element in inner:
                if isinstance(element, Struct):
                    yield from codes_in(element)
