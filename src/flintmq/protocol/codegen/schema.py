"""Kafka's message definitions as data: which fields a message has, in which versions, of which types.

Read from `definitions.txt`, which `scripts/make_definitions.py` writes, and from `own_definitions.txt`, which holds
the few requests that Kafka does not have, in the same form and written by hand. Only the message asked for is
parsed, because a broker that starts uses a handful of the two hundred. This module knows the format of
that text; it must not know how anything is written on the wire.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

Range = tuple[int, int]

NEVER: Final[Range] = (0, -1)
NOT_FLEXIBLE: Final = 32768
"""Greater than any version: the first flexible version of a message that has none."""

STRUCT: Final = "struct"
_LAST_VERSION: Final = 32767
_ZERO_UUID: Final = bytes(16)

_INTEGERS: Final = frozenset(("int8", "int16", "uint16", "int32", "uint32", "int64"))
_IMPLICIT_DEFAULTS: Final[dict[str, object]] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": _ZERO_UUID,
}
_PRIMITIVES: Final = _INTEGERS | _IMPLICIT_DEFAULTS.keys()


class Field(NamedTuple):
    """One field. `kind` is a primitive's name or STRUCT; of an array it is the element's."""

    name: str
    kind: str
    struct: str
    array: bool
    versions: Range
    nullable: Range
    tag: int
    tagged: Range
    default: Any
    """The default of a primitive; None also stands for null arrays and structs (see `default_is_null`)."""
    default_is_null: bool
    ignorable: bool
    compactable: bool

    def present(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def may_be_null(self, version: int) -> bool:
        return self.nullable[0] <= version <= self.nullable[1]

    def is_tagged(self, version: int) -> bool:
        return self.tagged[0] <= version <= self.tagged[1] and self.present(version)

    @property
    def ever_null(self) -> bool:
        return self.nullable != NEVER or self.kind == "records"


class MessageSchema(NamedTuple):
    """One message over all its versions. `structs` holds its own fields under its own name."""

    name: str
    kind: str
    api_key: int
    versions: Range
    flexible: int
    structs: dict[str, tuple[Field, ...]]


class Definitions:
    """The text, cut into blocks; a block is parsed when its message is asked for."""

    def __init__(self, text: str) -> None:
        self._blocks = {block[: block.index(" ")]: block for block in text.split("\n\n")}

    def names(self, kind: str | None = None) -> list[str]:
        return [
            name for name, block in self._blocks.items() if kind is None or block.split(" ", 2)[1] == kind
        ]

    def name_of(self, kind: str, api_key: int) -> str:
        """The request or response with that key; KeyError if there is none."""
        for block in self._blocks.values():
            if block.split(" ", 3)[1:3] == [kind, str(api_key)]:
                return block[: block.index(" ")]
        raise KeyError(api_key)

    def first_flexible_versions(self) -> dict[int, int]:
        """By api key, the first version of the request (and so of its response) that is flexible."""
        headlines = [_headline(block.partition("\n")[0]) for block in self._blocks.values()]
        return {api_key: flexible for _, kind, api_key, flexible, _ in headlines if kind == "request"}

    def parse(self, name: str) -> MessageSchema:
        """Raises KeyError for a name that is not defined."""
        first, *lines = self._blocks[name].rstrip("\n").split("\n")
        _, kind, api_key, flexible, versions = _headline(first)
        fields: list[Field] = []
        structs = {name: fields}
        for line in lines:
            if line[0] == " ":
                fields.append(_field(line.split()))
            else:
                structs[line] = fields = []
        frozen = {struct: tuple(members) for struct, members in structs.items()}
        return MessageSchema(name, kind, api_key, versions, flexible, frozen)


@cache
def definitions() -> Definitions:
    """All that this version knows of the protocol: Kafka's messages, then FlintMQ's own."""
    return Definitions(f"{_text('definitions.txt')}\n{_text('own_definitions.txt')}")


@cache
def own_definitions() -> Definitions:
    """FlintMQ's own messages alone."""
    return Definitions(_text("own_definitions.txt"))


def _text(name: str) -> str:
    # Through the loader, because that also finds a file inside an archive.
    loader: Any = __spec__.loader
    text: bytes = loader.get_data(__file__.removesuffix(__name__.rpartition(".")[2] + ".py") + name)
    return text.decode()


def _headline(line: str) -> tuple[str, str, int, int, Range]:
    name, kind, api_key, versions, flexible = line.split(" ")
    first_flexible = NOT_FLEXIBLE if flexible == "none" else _range(flexible)[0]
    return name, kind, -1 if api_key == "-" else int(api_key), first_flexible, _range(versions)


def _range(text: str) -> Range:
    if text == "none":
        return NEVER
    if text[-1] == "+":
        return int(text[:-1]), _LAST_VERSION
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _field(words: list[str]) -> Field:
    name, kind, versions, *modifiers = words
    array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    struct = "" if kind in _PRIMITIVES else kind
    nullable, tag, tagged = NEVER, -1, NEVER
    default: str | None = None
    ignorable, compactable = False, True
    for modifier in modifiers:
        word, _, value = modifier.partition(":")
        if word == "null":
            nullable = _range(value)
        elif word == "tag":
            number, _, tagged_versions = value.partition(":")
            tag, tagged = int(number), _range(tagged_versions)
        elif word == "default":
            default = value
        elif word == "ignorable":
            ignorable = True
        elif word == "inflexible":
            compactable = False
    is_null = default == "null" or (kind == "records" and not array)
    return Field(
        name,
        STRUCT if struct else kind,
        struct,
        array,
        _range(versions),
        nullable,
        tag,
        tagged,
        None if is_null or array or struct else _default(kind, default),
        is_null,
        ignorable,
        compactable,
    )


def _default(kind: str, text: str | None) -> object:
    if kind in _INTEGERS:
        return int(text or "0")
    if text is None:
        return _IMPLICIT_DEFAULTS[kind]
    if kind == "bool":
        return text == "true"
    return float(text) if kind == "float64" else text
