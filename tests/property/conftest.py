"""Messages filled with values from all over their fields' domains, for tests of the codec."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from flintmq.protocol.codegen.schema import Field
from flintmq.protocol.codegen.structures import Message

Populate = Callable[..., Any]

INTEGERS = {"int8": (8, True), "int16": (16, True), "uint16": (16, False), "int32": (32, True)}
INTEGERS |= {"uint32": (32, False), "int64": (64, True)}
TEXTS = ("", "a", "topic-1", "ünïcödé", "日本語", "\U0001f980" * 20, "\x00", "x" * 126, "x" * 127, "y" * 300)
KNOWN_ERRORS_MAX = 100
TIME_MAX = 2**41


def populate(cls: type[Message], version: int, source: random.Random, *, tame: bool = False) -> Message:
    """A message with only those fields set that `version` has.

    `tame` keeps to error codes and times that a reader which gives them a meaning accepts.
    """

    def struct(name: str) -> Any:
        made = cls() if name == cls.__name__ else getattr(cls, name)()
        for field in cls.schema.structs[name]:
            if field.present(version) and not (field.is_tagged(version) and source.random() < 0.5):
                setattr(made, field.name, value(field))
        return made

    def value(field: Field) -> Any:
        if field.may_be_null(version) and source.random() < 0.25:
            return None
        if not field.array:
            return element(field)
        counts = (0, 1, 2, 3) if field.struct else (0, 1, 3, 15, 16, 40)
        return [element(field) for _ in range(source.choice(counts))]

    def element(field: Field) -> Any:
        if field.struct:
            return struct(field.struct)
        if field.kind in INTEGERS:
            return integer(field)
        if field.kind == "bool":
            return source.random() < 0.5
        if field.kind == "float64":
            return source.choice((0.0, -1.5, 1e300, source.random()))
        if field.kind == "string":
            return source.choice(TEXTS)
        if field.kind == "uuid":
            return bytes(source.choice((0, 1, 255)) for _ in range(16))
        return bytes(source.randrange(256) for _ in range(source.choice((0, 1, 61, 126, 127, 200))))

    def integer(field: Field) -> int:
        bits, signed = INTEGERS[field.kind]
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        if tame and field.name.endswith("error_code"):
            low, high = 0, KNOWN_ERRORS_MAX
        elif tame and bits == 64 and field.name.endswith(("_ms", "time", "timestamp")):
            low, high = 0, TIME_MAX
        return source.choice((low, high, max(low, 0), max(low, -1), 1, source.randint(low, high)))

    return struct(cls.__name__)  # type: ignore[no-any-return]


@pytest.fixture(scope="session", name="populate")
def populate_fixture() -> Populate:
    return populate
