"""The classes of Kafka's messages: one per message for all its versions, built when first asked for.

A message is a slotted object with a keyword-only constructor in which every field has Kafka's default.
Nothing here knows the wire; `compiler` does.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, dataclass_transform

from flintmq.protocol.codegen.schema import Field, MessageSchema, Range

_FRESH: Final = object()
"""Stands in a constructor's signature for a list or struct that each object gets of its own."""

_CLIPPED_SIZE: Final = 32


@dataclass_transform(kw_only_default=True)
class Struct:
    """A part of a message. Equal to another when its class and all its fields are."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if self.__class__ is not other.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in self.__slots__)
        return f"{type(self).__qualname__}({fields})"


class Message(Struct):
    """A whole message, with what is true of all its versions."""

    __slots__ = ()

    api_key: ClassVar[int]
    """-1 for messages that are not sent as requests or responses."""
    kind: ClassVar[str]
    """`request`, `response`, `header`, `data`, `coordinator-key` or `coordinator-value`."""
    versions: ClassVar[Range]
    """The lowest and the highest version."""
    flexible: ClassVar[int]
    """The first version with compact lengths and tagged fields; larger than any version if there is none."""
    schema: ClassVar[MessageSchema]


def build(schema: MessageSchema, module: str) -> type[Message]:
    """The class of one message, its structs as classes inside it."""
    namespace: dict[str, Any] = {"_FRESH": _FRESH}
    # One compilation for all constructors of the message: compiling has a cost of its own per call.
    source = "\n".join(_constructor(name, fields) for name, fields in schema.structs.items())
    exec(compile(source, f"<constructors of {schema.name}>", "exec"), namespace)  # nosec B102
    members: dict[str, Any] = {
        "api_key": schema.api_key,
        "kind": schema.kind,
        "versions": schema.versions,
        "flexible": schema.flexible,
        "schema": schema,
    }
    for name, fields in schema.structs.items():
        if name != schema.name:
            qualname = f"{schema.name}.{name}"
            members[name] = namespace[name] = _class(
                name, (Struct,), qualname, module, fields, namespace["_init_" + name], {}
            )
    init = namespace["_init_" + schema.name]
    message: type[Message] = _class(
        schema.name, (Message,), schema.name, module, schema.structs[schema.name], init, members
    )
    return message


def _class(
    name: str,
    bases: tuple[type, ...],
    qualname: str,
    module: str,
    fields: tuple[Field, ...],
    init: Any,
    members: dict[str, Any],
) -> Any:
    init.__name__, init.__qualname__, init.__module__ = "__init__", f"{qualname}.__init__", module
    slots = tuple(field.name for field in fields)
    own = {"__slots__": slots, "__init__": init, "__module__": module, "__qualname__": qualname}
    return type(name, bases, own | members)


def _constructor(name: str, fields: tuple[Field, ...]) -> str:
    parameters, body = [], []
    for field in fields:
        fresh = (
            ""
            if field.default_is_null
            else "[]"
            if field.array
            else f"{field.struct}()"
            if field.struct
            else ""
        )
        parameters.append(f"{field.name}={'_FRESH' if fresh else repr(field.default)}")
        value = f"{fresh} if {field.name} is _FRESH else {field.name}" if fresh else field.name
        body.append(f"    self.{field.name} = {value}")
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    return f"def _init_{name}({signature}):\n" + "\n".join(body or ["    pass"])


def _shown(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview) and len(value) > _CLIPPED_SIZE:
        return f"<{len(value)} bytes>"
    return repr(value)
