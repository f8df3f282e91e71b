"""Random requests of every API and version, and what transmission by a drunkard makes of them. Pure, from a seed."""

from __future__ import annotations

import random
import struct
from typing import Any

from flintmq.broker.apis import APIS, Api
from flintmq.protocol import messages
from flintmq.protocol.codec import encode
from flintmq.protocol.codegen.schema import Field
from flintmq.protocol.codegen.structures import Message
from support.wire.wire import batch_of

TARGET = "target"
"""A topic that requests are about half of the time."""
SPARED = "not/a/topic"
"""Named by what makes and deletes topics, so that a lucky mutation does not make ten thousand partitions."""
_CHANGES_TOPICS = (19, 20, 37)
_NUMBERS = (0, 1, 2, 3, 7, -1, -2, 100, 127, 32767, 1 << 20, (1 << 31) - 1, -(1 << 31))
_SIZES = {"int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8}
_LONGEST_WAIT_MS = 20
_HEADER = struct.Struct(">hhih")


class Mutations:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def frame(self, correlation_id: int, api: Api | None = None) -> bytes:
        """One request with its length in front. The length is right: what follows it can then be read too."""
        chance = self._random
        api = api or chance.choice(APIS)
        version = chance.randint(*api.versions)
        request = messages.request_of(api.key)
        tags = b"\0" if version >= request.flexible else b""
        body = tags + encode(self._message(request, version), version)
        if chance.random() < 0.9:
            body = mutated(body, chance)
        if chance.random() < 0.02:
            version = chance.choice((-1, version + 1, 99, 32767))
        frame = _HEADER.pack(api.key, version, correlation_id, 4) + b"fuzz" + body
        return struct.pack(">i", len(frame)) + frame

    def _message(self, cls: type[Message], version: int) -> Message:
        message = cls()
        self._fill(cls, message, cls.__name__, version)
        if cls.api_key == 1:
            message.max_wait_ms = self._random.randrange(_LONGEST_WAIT_MS)  # type: ignore[attr-defined]
        return message

    def _fill(self, cls: type[Message], struct: Any, name: str, version: int) -> None:
        for field in cls.schema.structs[name]:
            if field.present(version):
                setattr(struct, field.name, self._value(cls, field, version))

    def _value(self, cls: type[Message], field: Field, version: int) -> Any:
        chance = self._random
        if field.may_be_null(version) and chance.random() < 0.1:
            return None
        if field.array:
            return [self._element(cls, field, version) for _ in range(chance.choice((0, 1, 1, 2, 3)))]
        return self._element(cls, field, version)

    def _element(self, cls: type[Message], field: Field, version: int) -> Any:
        chance = self._random
        if field.struct:
            element = getattr(cls, field.struct)()
            self._fill(cls, element, field.struct, version)
            return element
        if field.kind == "string":
            if cls.api_key in _CHANGES_TOPICS:
                return SPARED
            return chance.choice((TARGET, TARGET, TARGET, "", "x" * chance.randrange(300), SPARED, "0"))
        if field.kind == "uuid":
            return chance.choice((bytes(16), chance.randbytes(16)))
        if field.kind == "bool":
            return chance.random() < 0.5
        if field.kind == "float64":
            return chance.random()
        if field.kind == "records":
            batch = batch_of(*(chance.randbytes(chance.randrange(50)) for _ in range(chance.randint(1, 4))))
            return mutated(batch, chance) if chance.random() < 0.5 else batch
        if field.kind == "bytes":
            return chance.randbytes(chance.randrange(50))
        size = 8 * _SIZES[field.kind]
        number = chance.choice(_NUMBERS)
        if field.kind.startswith("u"):
            return number & ((1 << size) - 1)
        return number if -(1 << size - 1) <= number < 1 << size - 1 else chance.randrange(4)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return the data with a few bits, bytes or spans changed, removed, inserted or repeated."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        at = chance.randrange(len(out) + 1)
        kind = chance.randrange(7)
        if kind == 0 and out:
            out[at % len(out)] ^= 1 << chance.randrange(8)
        elif kind == 1 and out:
            out[at % len(out)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del out[at:]
        elif kind == 3:
            del out[at : at + chance.randrange(9)]
        elif kind == 4:
            out[at:at] = chance.randbytes(chance.randrange(9))
        elif kind == 5:
            out[at : at + 4] = struct.pack(">i", chance.choice(_NUMBERS))
        else:
            out[at:at] = out[at : at + chance.randrange(64)]
    return bytes(out)
