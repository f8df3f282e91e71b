"""Every message in every version survives encoding and decoding, and `kio` agrees about the bytes (B1)."""

from __future__ import annotations

import dataclasses
import io
import random
import re
import uuid
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from flintmq.protocol import messages
from flintmq.protocol.codec import decode, encode, encode_into
from flintmq.protocol.codegen.structures import Message, Struct
from flintmq.protocol.header import FIRST_OWN_KEY

Populate = Callable[..., Any]

ORACLE_SAMPLES = 6
QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


OF_KAFKA = [name for name in messages.names() if messages.load(name).api_key < FIRST_OWN_KEY]


def versions_of(cls: type[Message]) -> range:
    return range(cls.versions[0], cls.versions[1] + 1)


@pytest.mark.parametrize("name", messages.names())
@settings(max_examples=10, deadline=None, database=None, suppress_health_check=QUIET)
@given(source=st.randoms(use_true_random=False))
def test_every_version_survives_a_round_trip(name: str, populate: Populate, source: random.Random) -> None:
    cls = messages.load(name)
    for version in versions_of(cls):
        message = populate(cls, version, source)
        data = encode(message, version)
        assert decode(cls, data, version) == (message, len(data))
        shifted = bytearray(b"front")
        encode_into(message, version, shifted)
        shifted += b"back"
        assert decode(cls, memoryview(shifted), version, 5) == (message, 5 + len(data))


def kio_class(cls: type[Message], version: int) -> Any:
    """kio's class for the same message and version, or None."""
    name = cls.__name__
    if cls.kind in ("request", "response"):
        name = name.removesuffix(cls.kind.capitalize())
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    try:
        return resolve_name(schema_name_map[snake][version][EntityType[cls.kind]])
    except KeyError:
        return None


def assert_same(ours: Any, theirs: Any, version: int, schema: Any) -> None:
    """Same names in the same order, same values where kio keeps them plain."""
    fields = [field for field in schema.structs[type(ours).__name__] if field.present(version)]
    their_fields = dataclasses.fields(theirs)
    assert len(fields) == len(their_fields)
    for field, their_field in zip(fields, their_fields, strict=True):
        assert their_field.name in (field.name, field.name.removesuffix("_ms"), field.name + "_"), field
        assert_same_value(getattr(ours, field.name), getattr(theirs, their_field.name), version, schema)


def assert_same_value(ours: Any, theirs: Any, version: int, schema: Any) -> None:
    if isinstance(ours, Struct):
        assert_same(ours, theirs, version, schema)
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            assert_same_value(mine, other, version, schema)
    elif isinstance(theirs, uuid.UUID):
        assert ours == theirs.bytes
    elif isinstance(theirs, int | str | bytes | float):
        assert ours == theirs


@pytest.mark.parametrize("name", OF_KAFKA)
def test_kio_reads_our_bytes_and_writes_the_same(name: str, populate: Populate) -> None:
    cls = messages.load(name)
    known = [(version, kio_class(cls, version)) for version in versions_of(cls)]
    known = [(version, other) for version, other in known if other is not None]
    if not known:
        pytest.skip(f"kio has no {name}")
    for version, other in known:
        source = random.Random(f"{name} {version}")
        for _ in range(ORACLE_SAMPLES):
            message = populate(cls, version, source, tame=True)
            data = encode(message, version)
            theirs, size = entity_reader(other)(data, 0)
            assert size == len(data)
            assert_same(message, theirs, version, cls.schema)
            out = io.BytesIO()
            entity_writer(other)(out, theirs)
            assert out.getvalue() == data
            assert decode(cls, out.getvalue(), version) == (message, len(data))
