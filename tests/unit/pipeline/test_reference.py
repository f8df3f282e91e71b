"""The JSON schema and the reference are made from the declaration, are up to date, and say what the reader does."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from flintmq.pipeline import Examined

ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "make_pipeline_reference.py"))
SCHEMA: dict[str, Any] = json.loads(SCRIPT["render_schema"]())
TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}

Examine = Callable[..., Examined]


def accepts(value: Any, schema: dict[str, Any]) -> bool:
    """As much of JSON Schema as the schema uses."""
    known = {
        "$ref",
        "$schema",
        "title",
        "definitions",
        "description",
        "default",
        "type",
        "anyOf",
        "enum",
        "pattern",
    }
    known |= {
        "minimum",
        "properties",
        "required",
        "additionalProperties",
        "propertyNames",
        "minProperties",
        "items",
        "minItems",
    }
    assert set(schema) <= known
    if "$ref" in schema:
        return accepts(value, SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema and not any(accepts(value, one) for one in schema["anyOf"]):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(
            isinstance(value, TYPES[one]) and (one == "boolean") == isinstance(value, bool) for one in types
        ):
            return False
    if isinstance(value, str) and "pattern" in schema:
        return re.search(schema["pattern"], value) is not None
    if isinstance(value, int) and value < schema.get("minimum", value):
        return False
    if isinstance(value, list) and "items" in schema:
        return len(value) >= schema["minItems"] and all(accepts(one, schema["items"]) for one in value)
    if not isinstance(value, dict):
        return True
    if not set(schema.get("required", ())) <= set(value) or len(value) < schema.get("minProperties", 0):
        return False
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    return all(
        accepts(name, schema.get("propertyNames", {}))
        and (
            accepts(one, properties[name])
            if name in properties
            else others is not False and accepts(one, others)
        )
        for name, one in value.items()
    )


def test_every_field_is_in_the_reference_with_its_meaning() -> None:
    text = SCRIPT["REFERENCE"].read_text(encoding="utf-8")
    for part in SCRIPT["parts"]():
        assert part.__doc__
        section = text.partition(f"\n## {SCRIPT['_title'](part)}\n")[2].partition("\n## ")[0]
        for name, field in SCRIPT["fields_of"](part).items():
            assert f"| `{name}` |" in section
            assert field.meaning


def test_the_reference_s_links_lead_somewhere() -> None:
    text = SCRIPT["REFERENCE"].read_text(encoding="utf-8")
    anchors = {
        line[3:].lower().replace(":", "").replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("## ")
    }
    assert set(re.findall(r"\(#([^)]+)\)", text)) <= anchors


def test_the_reference_s_example_is_valid_to_both(examined: Examine) -> None:
    text = SCRIPT["REFERENCE"].read_text(encoding="utf-8")
    example = text.partition("```yaml\n")[2].partition("```")[0]
    assert examined(example).problems == []
    assert accepts(yaml.safe_load(example), SCHEMA)


HEAD = "name: x\nsources: {a: {topic: a}}\n"


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        (HEAD + "sinks: {z: {from: a, console: 1}}", True),
        (HEAD + "sinks: {z: {from: a, topic: z, value: json, options: {kafka.batch.size: 5}}}", True),
        (HEAD + "sinks: {z: {from: a, console: '${N:-5}'}}\ntrigger: available-now", True),
        (HEAD + "steps: {s: {python: steps.py:f, from: [a]}}\nsinks: {z: {from: s, console: 1}}", True),
        (HEAD + "sinks: {z: {from: a, console: 0}}", False),
        (HEAD + "sinks: {z: {from: a}}", False),
        (HEAD + "sinks: {z: {console: 1}}", False),
        (HEAD + "sinks: {z-z: {from: a, console: 1}}", False),
        (HEAD + "sinks: {z: {from: a, console: 1, topic: z}}", False),
        (HEAD + "sinks: {z: {from: a, topic: z, value: jsn}}", False),
        (HEAD + "sinks: {z: {from: a, topic: z}}\ntrigger: {evry: 1s}", False),
        (HEAD + "sinks: {z: {from: a, table: z, partition_by: []}}", False),
        (HEAD + "sinks: {z: {from: a, table: z, mode: complete}}", True),
        (HEAD + "sinks: {z: {from: a, table: z, mode: update}}", False),
        (HEAD + "sinks: {z: {from: a, jdbc: 'jdbc:x', into: z, mode: update}}", False),
        (HEAD + "sinks: {z: {from: a, topic: z, mode: update}}", True),
        (HEAD + "sinks: {z: {from: a, topic: z, value: {format: protobuf, schema_file: z.proto}}}", False),
        ("name: x\nsources: {a: {topic: a}}", False),
        (HEAD + "sinks: {}", False),
    ],
)
def test_schema_and_reader_agree(examined: Examine, tmp_path: Path, text: str, is_valid: bool) -> None:
    (tmp_path / "steps.py").write_text("def f(a): ...", encoding="utf-8")
    assert examined(text + "\n").is_valid == is_valid
    assert accepts(yaml.safe_load(text), SCHEMA) == is_valid
