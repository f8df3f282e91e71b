"""The JSON schema of a pipeline's file, from its declaration: for editors, which then know its fields. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from flintmq.pipeline.spec.declaration import DeclaredField, FieldKind, Part, fields_of
from flintmq.pipeline.spec.model import Pipeline

_VARIABLE: Final = {"type": "string", "pattern": r"\$\{"}
_SCALAR: Final = {"type": ["string", "number", "boolean"]}
_TEXT: Final = {"type": ["string", "number"]}


def parts(part: type[Part] = Pipeline) -> list[type[Part]]:
    """All classes of the declaration, each before those in it."""
    found: dict[type[Part], None] = {part: None}
    for field in fields_of(part).values():
        for one in field.of:
            found.update(dict.fromkeys(parts(one)))
    return list(found)


def render_schema() -> str:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "FlintMQ pipeline",
        "$ref": "#/definitions/Pipeline",
        "definitions": {part.__name__: _object(part) for part in parts()},
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _object(part: type[Part]) -> dict[str, Any]:
    declared = fields_of(part)
    return {
        "type": "object",
        "description": docstring(part),
        "properties": {name: _property(field) for name, field in declared.items()},
        "required": [name for name, field in declared.items() if field.is_required],
        "additionalProperties": False,
    }


def _property(field: DeclaredField) -> dict[str, Any]:
    about: dict[str, Any] = {"description": sentence(field.meaning)}
    if field.default_text:
        about["default"] = field.default
    return {**about, **_kind(field)}


def _kind(field: DeclaredField) -> dict[str, Any]:
    match field.kind:
        case FieldKind.CHOICE:
            return {"anyOf": [{"enum": list(field.choices)}, _VARIABLE]}
        case FieldKind.FLAG:
            return {"anyOf": [{"type": "boolean"}, _VARIABLE]}
        case FieldKind.COUNT:
            return {"anyOf": [{"type": "integer", "minimum": 1}, _VARIABLE]}
        case FieldKind.NAMES | FieldKind.TEXTS:
            return {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
        case FieldKind.OPTIONS:
            return {"type": "object", "additionalProperties": _SCALAR}
        case FieldKind.PART:
            return {"anyOf": _alternatives(field)}
        case FieldKind.PARTS:
            names = {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}
            return {
                "type": "object",
                "propertyNames": names,
                "additionalProperties": {"anyOf": _alternatives(field)},
                **({"minProperties": 1} if field.is_required else {}),
            }
        case _:
            return dict(_TEXT)


def _alternatives(field: DeclaredField) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"$ref": f"#/definitions/{part.__name__}"} for part in field.of]
    if len(field.of) == 1 and (short := field.of[0].SHORT):
        found.insert(0, _kind(fields_of(field.of[0])[short]))
    return found


def docstring(part: type[Part]) -> str:
    """What a part is, in one line."""
    return " ".join((part.__doc__ or "").split())


def sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."
