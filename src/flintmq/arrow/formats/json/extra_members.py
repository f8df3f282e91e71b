"""Finds the members of JSON objects that have no column: their names, their types, and their text.

    extra = ExtraMembers(schema)
    found = extra.find(b'{"id": 1, "place": {"x": 1, "zip": "123"}, "note": "hi"}')
    found.names, found.inner      note, and place.zip
    found.text                    {"note":"hi","place":{"zip":"123"}}

A member within the elements of a list or of a map has the path `items.element.zip`, `prices.value.zip`; the text then
has the whole list or map, because parts of it would lose their places. Invariant: `find` is for values that the
columns accept, and every member that no column takes is found. This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

from flintmq.arrow.formats.json.inference import kind_of, merge_kinds

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_NULL: Final = b"null"
_NO_NAMES: Final[frozenset[str]] = frozenset()


_SHAPES_MAX: Final = 1024
"""Sets of names that are remembered for one object of the schema."""


class _Shape(NamedTuple):
    """What objects with certain members have."""

    extra: tuple[str, ...]
    """Names that have no column."""
    inner: tuple[tuple[str, _Node], ...]
    """Members whose own members have to be looked at."""


class _Members:
    """An object with columns for some of its members."""

    def __init__(self, columns: Iterable[pa.Field], path: str) -> None:
        self._path = path
        # None where a column takes whatever is there.
        self._columns = {one.name: _node(one.type, path + one.name) for one in columns}
        self._shapes: dict[tuple[str, ...], _Shape] = {}

    def path_of(self, name: str) -> str:
        return self._path + name

    def shape_of(self, names: Iterable[str]) -> _Shape:
        # Most objects have the same members as others before them.
        key = tuple(names)
        shape = self._shapes.get(key)
        if shape is None:
            extra = tuple(name for name in key if name not in self._columns)
            inner = [(name, self._columns.get(name)) for name in key]
            shape = _Shape(extra, tuple((name, node) for name, node in inner if node is not None))
            if len(self._shapes) >= _SHAPES_MAX:
                self._shapes.clear()
            self._shapes[key] = shape
        return shape


class _Elements(NamedTuple):
    """A list or a map whose elements are objects, or hold some."""

    is_map: bool
    of: _Node


_Node: TypeAlias = _Members | _Elements
_Found: TypeAlias = tuple[bytes | None, Any]
"""The text and the kind of what is found."""


class FoundMembers(NamedTuple):
    """Of one value."""

    names: tuple[str, ...]
    """Of members of the value itself; equal ones are the same object, most of the time."""
    inner: frozenset[str]
    """Paths of members within others, whose parts are separated by dots."""
    text: bytes | None
    """The members as one JSON object; None if there are none, or if nobody asked for it."""
    kind: Any
    """Their types as `inference` has them; None if nobody asked for them, or if every member is null."""

    def __bool__(self) -> bool:
        return bool(self.names or self.inner)


class ExtraMembers:
    def __init__(self, schema: pa.Schema) -> None:
        self._root = _Members(schema, "")

    def find(self, value: bytes, *, keep: bool = False, infer: bool = False) -> FoundMembers:
        """With `keep` their text is found too, with `infer` their types."""
        members = _OBJECT.decode(value)
        shape = self._root.shape_of(members)
        if not (shape.inner or keep or infer):
            return FoundMembers(shape.extra, _NO_NAMES, None, None)
        search = _Search(keep, infer)
        text, kind = search.in_members(members, self._root, shape)
        return FoundMembers(shape.extra, frozenset(search.names.difference(shape.extra)), text, kind)


def _node(kind: pa.DataType, path: str) -> _Node | None:
    if pa.types.is_struct(kind):
        return _Members(kind, f"{path}.")
    if pa.types.is_list(kind):
        inner = _node(kind.value_type, f"{path}.element")
        return None if inner is None else _Elements(is_map=False, of=inner)
    if pa.types.is_map(kind):
        inner = _node(kind.item_type, f"{path}.value")
        return None if inner is None else _Elements(is_map=True, of=inner)
    return None


class _Search:
    def __init__(self, keep: bool, infer: bool) -> None:
        self.names: set[str] = set()
        self._keep = keep
        self._infer = infer

    def in_members(self, members: dict[str, msgspec.Raw], node: _Members, shape: _Shape) -> _Found:
        self.names.update(map(node.path_of, shape.extra))
        parts: dict[str, msgspec.Raw] = {}
        kinds: dict[str, Any] = {}
        if self._keep:
            parts = {name: members[name] for name in shape.extra}
        if self._infer:
            kinds = {name: kind_of(msgspec.json.decode(members[name])) for name in shape.extra}
        for name, inner in shape.inner:
            text, kind = self._in(members[name], inner)
            if text is not None:
                parts[name] = msgspec.Raw(text)
            kinds[name] = kind
        kinds = {name: kind for name, kind in kinds.items() if kind is not None}
        return (msgspec.json.encode(parts) if parts else None), (kinds or None)

    def _in(self, value: msgspec.Raw, node: _Node) -> _Found:
        if bytes(value) == _NULL:
            return None, None
        if isinstance(node, _Members):
            members = _OBJECT.decode(value)
            return self.in_members(members, node, node.shape_of(members))
        if node.is_map:
            # No column can be inferred for a member of a map's values: it would be one of all other values, too.
            text, _ = self._in_elements(value, _OBJECT.decode(value).values(), node.of)
            return text, None
        text, kind = self._in_elements(value, _ARRAY.decode(value), node.of)
        return text, None if kind is None else [kind]

    def _in_elements(self, value: msgspec.Raw, elements: Iterable[msgspec.Raw], node: _Node) -> _Found:
        is_found, kind = False, None
        for one in elements:
            text, element_kind = self._in(one, node)
            is_found = is_found or text is not None
            kind = merge_kinds(kind, element_kind)
        return (bytes(value) if is_found else None), kind
