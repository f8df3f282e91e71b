"""The error codes that an answer holds, wherever in it they stand.

Kafka puts them at the top of a response, with each topic, with each partition, or at several of these. Where
they can stand is read from the message's schema once; an answer without a place for one costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from flintmq.protocol.codegen.schema import MessageSchema
from flintmq.protocol.codegen.structures import Message

_CODES = ("error_code", "partition_error_code")
_known: dict[int, _Places | None] = {}
"""By API key; filled as answers come."""


class _Places(NamedTuple):
    """Where error codes can stand in one struct."""

    here: str
    """The field's name; empty if there is none."""
    below: tuple[tuple[str, bool, _Places], ...]
    """Fields that lead to more: name, whether it is an array, and the places in each element."""


def error_codes_in(response: Message) -> Iterator[int]:
    """Those that are not 0, some perhaps repeatedly."""
    try:
        places = _known[response.api_key]
    except KeyError:
        places = _known[response.api_key] = _places(response.schema, response.schema.name)
    return _codes(response, places) if places is not None else iter(())


def _codes(struct: Any, places: _Places) -> Iterator[int]:
    if places.here and (code := getattr(struct, places.here)):
        yield code
    for name, is_array, inner in places.below:
        value = getattr(struct, name)
        if not value:
            continue
        if not is_array:
            yield from _codes(value, inner)
        elif not inner.below:
            for element in value:
                if code := getattr(element, inner.here):
                    yield code
        else:
            for element in value:
                yield from _codes(element, inner)


def _places(schema: MessageSchema, struct: str) -> _Places | None:
    fields = schema.structs[struct]
    below = tuple(
        (field.name, field.array, inner)
        for field in fields
        if field.struct and (inner := _places(schema, field.struct)) is not None
    )
    here = next((field.name for field in fields if field.name in _CODES), "")
    return _Places(here, below) if here or below else None
