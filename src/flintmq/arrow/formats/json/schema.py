"""JSON Schema as a schema of Arrow: the part of it that says what columns there are. Pure.

Objects with properties are structs, objects with only `additionalProperties` are maps, and what has no single type
is taken as its text (`JSON_TEXT`): so a record that is valid under the JSON Schema is never refused for its types,
except for integers beyond 64 bits. Conditions on values (`minimum`, `pattern`, …) are not checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from flintmq.arrow.formats.decoder import SchemaError
from flintmq.arrow.formats.schema_merge import JSON_TEXT

_DEPTH_MAX: Final = 100
_REFERENCES_MAX: Final = 100


def parse(text: str, references: Mapping[str, str] | None = None) -> pa.Schema:
    """`references` are other schemas' texts, by the name that `$ref` has for them."""
    try:
        document = json.loads(text)
        others = {name: _named(json.loads(one), name) for name, one in (references or {}).items()}
    except ValueError as why:
        raise SchemaError(f"The JSON Schema is no JSON: {why}") from None
    kind = _Translation(document, others).type_of(document, 0)
    if not pa.types.is_struct(kind):
        raise SchemaError(
            "The JSON Schema is not that of an object with properties, which become the columns. "
            "Give one, or name the columns as in 'id long, name string'"
        )
    return pa.schema(list(kind))


class _Translation:
    def __init__(self, document: Any, others: Mapping[str, Any]) -> None:
        self._document = document
        self._others = others

    def type_of(self, node: Any, depth: int) -> pa.DataType:
        node, names = self._settled(node)
        if depth > _DEPTH_MAX:
            raise SchemaError(
                f"The JSON Schema is recursive, or nested more than {_DEPTH_MAX} deep: {_short(node)}"
            )
        if names == {"object"}:
            return self._object(node, depth)
        if names == {"array"}:
            items = node.get("items", True)
            return (
                pa.list_(self.type_of(items, depth + 1)) if isinstance(items, dict) else pa.list_(JSON_TEXT)
            )
        if names == {"string"}:
            return _string(node)
        if names == {"integer"}:
            return pa.int64()
        if names in ({"number"}, {"integer", "number"}):
            return pa.float64()
        return pa.bool_() if names == {"boolean"} else JSON_TEXT

    def is_nullable(self, node: Any) -> bool:
        """Also where the schema does not say."""
        _, names = self._settled(node, keep_null=True)
        return not names or "null" in names

    def _object(self, node: dict[str, Any], depth: int) -> pa.DataType:
        properties = node.get("properties") or {}
        if not isinstance(properties, dict):
            raise SchemaError(f"The JSON Schema has `properties` without names: {_short(properties)}")
        if properties:
            required = node.get("required", [])
            if not isinstance(required, list):
                raise SchemaError(f"The JSON Schema has `required`, and no list in it: {_short(required)}")
            return pa.struct(
                [
                    pa.field(
                        name,
                        self.type_of(one, depth + 1),
                        nullable=name not in required or self.is_nullable(one),
                    )
                    for name, one in properties.items()
                ]
            )
        others = node.get("additionalProperties")
        return (
            pa.map_(pa.string(), self.type_of(others, depth + 1)) if isinstance(others, dict) else JSON_TEXT
        )

    def _settled(self, node: Any, *, keep_null: bool = False) -> tuple[dict[str, Any], set[str]]:
        """The schema that counts, behind references and choices with null, and the types that it allows."""
        is_null_allowed = False
        for _ in range(_REFERENCES_MAX):
            if not isinstance(node, dict):
                return {}, set()
            if "$ref" in node:
                node = self._referred(node["$ref"])
                continue
            choices = node.get("anyOf") or node.get("oneOf")
            if not isinstance(choices, list):
                break
            others = [one for one in choices if one != {"type": "null"}]
            is_null_allowed |= len(others) < len(choices)
            if len(others) != 1:
                return {}, set()
            node = others[0]
        else:
            raise SchemaError(f"References in the JSON Schema go round in a circle: {_short(node)}")
        if "allOf" in node or "not" in node:
            return {}, set()
        named = node.get("type", "object" if "properties" in node else [])
        listed = [named] if isinstance(named, str) else named
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            raise SchemaError(
                f"The JSON Schema has a `type` that is no name and no list of names: {_short(named)}"
            )
        names = set(listed)
        if is_null_allowed:
            names.add("null")
        return node, names if keep_null else names - {"null"}

    def _referred(self, reference: Any) -> Any:
        name, _, path = str(reference).partition("#")
        node = self._others.get(name) if name else self._document
        for part in path.strip("/").split("/") if path.strip("/") else ():
            key = part.replace("~1", "/").replace("~0", "~")
            node = node.get(key) if isinstance(node, dict) else None
        if node is None:
            raise SchemaError(f"The JSON Schema refers to {reference!r}, which is not in it")
        return node


def _named(node: Any, document: str) -> Any:
    """Another document, in which references to itself name it."""
    if isinstance(node, list):
        return [_named(one, document) for one in node]
    if not isinstance(node, dict):
        return node
    found = {name: _named(one, document) for name, one in node.items()}
    if isinstance(reference := node.get("$ref"), str) and reference.startswith("#"):
        found["$ref"] = document + reference
    return found


def _string(node: dict[str, Any]) -> pa.DataType:
    if node.get("format") == "date-time":
        return pa.timestamp("us", "UTC")
    if node.get("format") == "date":
        return pa.date32()
    return pa.binary() if node.get("contentEncoding") == "base64" else pa.string()


def _short(node: Any) -> str:
    return str(node)[:200]
