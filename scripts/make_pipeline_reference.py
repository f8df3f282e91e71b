"""Write `docs/pipelines.schema.json` and `docs/pipelines-reference.md` from the declaration of a pipeline's file.

scripts/make_pipeline_reference.py            writes the files; run it after changing a field
scripts/make_pipeline_reference.py --check    exits with 1 if they are not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from flintmq.pipeline.spec.declaration import DeclaredField, FieldKind, Lasting, Part, fields_of
from flintmq.pipeline.spec.json_schema import docstring, parts, render_schema, sentence
from flintmq.pipeline.spec.problems import Rule

DOCS = Path(__file__).parent.parent / "docs"
SCHEMA = DOCS / "pipelines.schema.json"
REFERENCE = DOCS / "pipelines-reference.md"

INTRODUCTION = """\
# Pipelines: the file

<!-- Made by scripts/make_pipeline_reference.py from src/flintmq/pipeline: do not edit. -->

A pipeline is one YAML file: sources, steps and sinks by their names, in any order. A source or step is a table of its
name in SQL. `flintmq pipeline validate FILE` says everything that is wrong with it, with line and column, and
`flintmq pipeline plan FILE` draws it; neither needs Spark or a broker.

```yaml
# yaml-language-server: $schema=pipelines.schema.json
name: orders
sources:
  orders:
    topic: orders
    decode: {format: json, schema: "id long, country string, amount double, at timestamp"}
    watermark: {column: at, delay: 10 minutes}
steps:
  big:
    sql: select * from orders where amount > 10
    expect:
      positive: {that: amount > 0, otherwise: dead-letter}
sinks:
  big_orders: {from: big, topic: orders.big, key: country, value: json}
dead_letters: orders.dead
trigger: {every: 10 seconds}
```

The first line gives editors the names, meanings and choices below, from
[pipelines.schema.json](pipelines.schema.json), which `flintmq pipeline schema > pipelines.schema.json` also writes.

- **Names** of sources, steps and sinks have letters, digits and `_`, and are unique, in capitals or not.
- **Paths** are looked for beside the file; URLs such as `s3://…` are left as they are.
- **Times** are written like `10 seconds`, `5 minutes`, `1 hour`, `2 days`, or `10s`, `5m`, `1h`, `2d`.
- **Columns** are written as Spark has them: `id long, tags array<string>, place struct<x: double, y: double>`.
- **`${NAME}`** in any value comes from the environment, `${NAME:-default}` has a default, and `$${` is `${` itself.
- **Short forms**: where a part says *short*, a plain text may stand for it: `value: json` is `value: {format: json}`.

*Change* says whether a field may change while there is a checkpoint: `no` means that the pipeline then needs a new
one.
"""

CHECKS = """\
## What is checked

Before Spark starts, all at once. Each problem has one of these rules, which `validate --json` names.

"""

_KINDS = {
    FieldKind.TEXT: "text",
    FieldKind.FLAG: "true or false",
    FieldKind.COUNT: "number",
    FieldKind.DURATION: "time",
    FieldKind.COLUMNS: "columns",
    FieldKind.SQL: "SQL",
    FieldKind.PYTHON: "`file.py:name`",
    FieldKind.PATH: "path",
    FieldKind.NAME: "name",
    FieldKind.NAMES: "names",
    FieldKind.TEXTS: "texts",
    FieldKind.OPTIONS: "names and values",
}


# ---- the reference


def render_reference() -> str:
    return "\n".join(
        (INTRODUCTION, *map(_section, parts()), CHECKS + _table(("Rule", "What is wrong"), _rules()))
    )


def _section(part: type[Part]) -> str:
    rows = (
        (
            f"`{name}`",
            _kind_text(field),
            "required" if field.is_required else f"`{field.default_text}`" if field.default_text else "",
            field.lasting.value if field.lasting is not Lasting.FREE else "",
            sentence(field.meaning),
        )
        for name, field in fields_of(part).items()
    )
    short = f" *Short:* a text gives `{part.SHORT}`." if part.SHORT else ""
    table = _table(("Field", "Kind", "Default", "Change", "Meaning"), rows)
    return f"## {_title(part)}\n\n{docstring(part)}{short}\n\n{table}"


def _kind_text(field: DeclaredField) -> str:
    if field.kind is FieldKind.CHOICE:
        return ", ".join(f"`{choice}`" for choice in field.choices)
    if field.kind in (FieldKind.PART, FieldKind.PARTS):
        links = ", ".join(f"[{_title(part)}](#{_anchor(part)})" for part in field.of)
        return f"by name: {links}" if field.kind is FieldKind.PARTS else links
    return _KINDS[field.kind]


def _title(part: type[Part]) -> str:
    """`TopicSource` is Source: topic, and `FileDecode` is File decode."""
    words = "".join(f" {char}" if char.isupper() else char for char in part.__name__).split()
    if part.TAG:
        return f"{words[-1]}: {part.TAG}"
    return " ".join(words).capitalize()


def _anchor(part: type[Part]) -> str:
    return _title(part).lower().replace(":", "").replace(" ", "-")


def _rules() -> Iterator[tuple[str, str]]:
    for rule in Rule:
        yield f"`{rule}`", sentence(rule.meaning)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return (
        "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        + "\n"
    )


def main() -> int:
    texts = {SCHEMA: render_schema(), REFERENCE: render_reference()}
    if "--check" in sys.argv:
        return int(
            any(not file.exists() or file.read_text(encoding="utf-8") != text for file, text in texts.items())
        )
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
        print(f"wrote {file}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
