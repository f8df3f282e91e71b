"""Finds the members of JSON objects that have no column: their names, their types, and their text.

    extra = ExtraMembers(schema)
    found = extra.find(b'{"id": 1, "place": {"x": 1, "zip": "123"}, "note": "hi"}')
    found.names          place.zip, note
    found.text           {"place":{"zip":"123"},"note":"hi"}

A member within the elements of a list or of a map has the path `items.element.zip`, `prices.value.zip`; the text then
has the whole list or map, because parts of it would lose their places. Invariant: `find` is for values that the
columns accept, and every member that no column takes is found. This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

from flintmq.arrow.formats.json.inference import kind_of, merge_kinds

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_NULL: Final = b"null"


@dataclass(frozen=True, slots=True)
class _Members:
    """An object with columns for some of its members; None where a column takes whatever is there."""

    columns: dict[str, _Node | None]


@dataclass(frozen=True, slots=True)
class _Elements:
    """A list or a map whose elements are objects, or hold some."""

    is_map: bool
    of: _Node


_Node: TypeAlias = _Members | _Elements
_Found: TypeAlias = tuple[bytes | None, Any]
"""The text and the kind of what is found."""


class FoundMembers(NamedTuple):
    """Of one value."""

    names: set[str]
    """Paths, whose parts are separated by dots."""
    text: bytes | None
    """The members as one JSON object; None if there are none."""
    kind: Any
    """Their types as `inference` has them; None if they were not asked for, or if every member is null."""


class ExtraMembers:
    def __init__(self, schema: pa.Schema) -> None:
        self._root = _members(schema)

    def find(self, value: bytes, *, infer: bool = False) -> FoundMembers:
        """With `infer` their types are found too."""
        search = _Search(infer)
        text, kind = search.in_object(value, self._root, "")
        return FoundMembers(search.names, text, kind)


def _members(fields: Iterable[pa.Field]) -> _Members:
    return _Members({one.name: _node(one.type) for one in fields})


def _node(kind: pa.DataType) -> _Node | None:
    if pa.types.is_struct(kind):
        return _members(kind)
    if pa.types.is_list(kind):
        inner = _node(kind.value_type)
        return None if inner is None else _Elements(is_map=False, of=inner)
    if pa.types.is_map(kind):
        inner = _node(kind.item_type)
        return None if inner is None else _Elements(is_map=True, of=inner)
    return None


class _Search:
    def __init__(self, infer: bool) -> None:
        self.names: set[str] = set()
        self._infer = infer

    def in_object(self, value: bytes | msgspec.Raw, node: _Members, above: str) -> _Found:
        parts: dict[str, msgspec.Raw] = {}
        kinds: dict[str, Any] = {}
        for name, member in _OBJECT.decode(value).items():
            if name not in node.columns:
                self.names.add(above + name)
                parts[name] = member
                kind = kind_of(msgspec.json.decode(member)) if self._infer else None
            elif (inner := node.columns[name]) is not None:
                text, kind = self._in(member, inner, above + name)
                if text is not None:
                    parts[name] = msgspec.Raw(text)
            else:
                continue
            if kind is not None:
                kinds[name] = kind
        return (msgspec.json.encode(parts) if parts else None), (kinds or None)

    def _in(self, value: msgspec.Raw, node: _Node, path: str) -> _Found:
        if bytes(value) == _NULL:
            return None, None
        if isinstance(node, _Members):
            return self.in_object(value, node, f"{path}.")
        if node.is_map:
            # No column can be inferred for a member of a map's values: their struct may differ from key to key.
            text, _ = self._in_elements(value, _OBJECT.decode(value).values(), node.of, f"{path}.value")
            return text, None
        text, kind = self._in_elements(value, _ARRAY.decode(value), node.of, f"{path}.element")
        return text, None if kind is None else [kind]

    def _in_elements(
        self, value: msgspec.Raw, elements: Iterable[msgspec.Raw], node: _Node, path: str
    ) -> _Found:
        is_found, kind = False, None
        for one in elements:
            text, element_kind = self._in(one, node, path)
            is_found = is_found or text is not None
            kind = merge_kinds(kind, element_kind)
        return (bytes(value) if is_found else None), kind
