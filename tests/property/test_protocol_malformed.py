"""Whatever the bytes, decoding answers with a message or a ProtocolError, in memory bounded by the bytes."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flintmq.errors import ProtocolError
from flintmq.protocol import messages
from flintmq.protocol.codec import decode, decoder, encode
from flintmq.protocol.codegen.structures import Message

Populate = Callable[..., Any]

PREFIXES_MAX = 150
MUTATIONS = 30
HUGE_LENGTHS = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f")
MEMORY_MAX = 64 * 1024


def codecs() -> Iterator[tuple[type[Message], int]]:
    for name in messages.names():
        cls = messages.load(name)
        for version in range(cls.versions[0], cls.versions[1] + 1):
            yield cls, version


def smallest(cls: type[Message], version: int) -> bytes:
    """The bytes of a message whose arrays have one element, so that every length is in there."""

    def struct(name: str) -> Any:
        made = cls() if name == cls.__name__ else getattr(cls, name)()
        for field in cls.schema.structs[name]:
            if not field.present(version):
                continue
            if field.struct:
                inner = struct(field.struct)
                setattr(made, field.name, [inner] if field.array else inner)
            elif field.array:
                empty: Any = {"string": "", "uuid": bytes(16)}.get(field.kind, 0)
                setattr(made, field.name, [empty])
            elif getattr(made, field.name) is None:
                setattr(made, field.name, "" if field.kind == "string" else b"")
        return made

    return encode(struct(cls.__name__), version)


def test_a_message_cut_short_anywhere_is_refused(populate: Populate) -> None:
    for cls, version in codecs():
        data = encode(populate(cls, version, random.Random(f"{cls.__name__} {version}")), version)
        for size in range(min(len(data), PREFIXES_MAX)):
            with pytest.raises(ProtocolError, match=f"{cls.__name__} v{version}, "):
                decode(cls, data[:size], version)


def test_mutated_bytes_are_refused_or_read_as_something_that_can_be_written(populate: Populate) -> None:
    refused = 0
    for cls, version in codecs():
        source = random.Random(f"{cls.__name__} {version}")
        data = encode(populate(cls, version, source), version)
        for _ in range(MUTATIONS if data else 0):
            mutated = bytearray(data)
            for _ in range(source.choice((1, 1, 2, 8))):
                mutated[source.randrange(len(mutated))] = source.choice(
                    (0, 1, 127, 128, 255, source.randrange(256))
                )
            try:
                message, end = decode(cls, mutated, version)
            except ProtocolError:
                refused += 1
                continue
            assert end <= len(mutated)
            again = encode(message, version)
            assert encode(decode(cls, again, version)[0], version) == again
    assert refused


@pytest.mark.parametrize("huge", HUGE_LENGTHS, ids=lambda huge: huge.hex())
def test_a_length_or_count_without_its_bytes_costs_no_memory(huge: bytes) -> None:
    attempts = []
    for cls, version in codecs():
        data = smallest(cls, version)
        decoder(cls, version)
        attempts += [(cls, version, data[:at] + huge + data[at + 1 :]) for at in range(len(data))]
    tracemalloc.start()
    try:
        for cls, version, data in attempts:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            try:
                decode(cls, data, version)
            except ProtocolError:
                pass
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < MEMORY_MAX, (cls.__name__, version, data)
    finally:
        tracemalloc.stop()
