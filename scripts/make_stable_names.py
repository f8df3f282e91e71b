"""List the names that users and stored data depend on, in `tests/upgrade/stable_names.txt`.

    scripts/make_stable_names.py --check     prints the differences; exits with 1 if there are any (the default)
    scripts/make_stable_names.py --write     writes the file

Settings, metrics, commands and their options, options of the Spark source and sink, keys of pipeline files, APIs and
their versions come from the declared lists. Names of topics, headers, table properties, files and environment
variables are the string literals of the source code that have such a form.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from flintmq.arrow.scan.option_list import OPTIONS as SOURCE_OPTIONS
from flintmq.arrow.write.options import SINK_OPTIONS
from flintmq.broker.apis import APIS
from flintmq.cli.common.exit_codes import Exit
from flintmq.cli.main import main as command_line
from flintmq.lake.syncing.metrics import METRICS as LAKE_METRICS
from flintmq.metrics.declared import SECTIONS
from flintmq.pipeline.runtime.metrics import METRICS as PIPELINE_METRICS
from flintmq.pipeline.spec.json_schema import render_schema
from flintmq.settings import BROKER_SETTINGS, TOPIC_SETTINGS
from flintmq.settings.names import SHORT_NAMES

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "tests" / "upgrade" / "stable_names.txt"
SOURCES = ROOT / "src"

RENEW = """\
Names that are stored, sent or typed have changed: data directories, tables, checkpoints, clients, scripts or
dashboards that use the old ones stop working. If it is intended, renew the list:
scripts/make_stable_names.py --write"""

_MODULE = re.compile(r"flintmq(\.[a-z_]\w*)+")
_LITERAL = re.compile(
    r"__[a-z][a-z_]*[a-z]"  # internal topics, suffixes of tables
    r"|FLINTMQ_[A-Z_]*"  # environment variables
    r"|\.?flint(mq)?[./-][a-z./-]*"  # headers, table properties, groups, transactional ids
    r"|lake-[a-z-]*"
    r"|[a-z][a-z-]*-(checkpoint|shutdown)|[a-z]+\.metadata"  # files of a data directory
)


def render() -> str:
    return "\n".join(f"{section}: {line}" for section, lines in _sections() for line in lines) + "\n"


def _sections() -> Iterator[tuple[str, Iterable[str]]]:
    apis = sorted(APIS, key=lambda one: one.key)
    yield "api", [f"{one.key} {one.name} {one.versions[0]}-{one.versions[1]}" for one in apis]
    for kind, settings in (("broker", BROKER_SETTINGS), ("topic", TOPIC_SETTINGS)):
        declared = [
            " ".join((one.name, one.kind.name.lower(), *map(str, one.aliases))) for one in settings.values()
        ]
        yield f"{kind} setting", sorted(declared)
    yield "short name", sorted(f"{name} {target}" for name, target in SHORT_NAMES.items())
    metrics = [*(one for _, section in SECTIONS for one in section), *LAKE_METRICS, *PIPELINE_METRICS]
    yield "metric", sorted(" ".join((one.name, one.kind.value, *one.labels)) for one in metrics)
    yield "command", sorted(_commands(command_line, "flintmq"))
    yield "exit code", [f"{int(one)} {one.name}" for one in Exit]
    yield "source option", sorted(f"{one.name} ({one.scope.value})" for one in SOURCE_OPTIONS)
    yield "sink option", sorted(one.name for one in SINK_OPTIONS)
    schema = json.loads(render_schema())
    yield "pipeline key", sorted(set(_keys(schema, schema, "")))
    yield "literal", sorted(set(_literals()))


def _commands(command: click.Command, path: str) -> Iterator[str]:
    parameters = sorted(_parameter(one) for one in command.params)
    yield " ".join((path, *parameters))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, f"{path} {name}"
            yield from _commands(found, f"{path} {name}")


def _parameter(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return parameter.make_metavar(click.Context(click.Command("any")))
    return "/".join((*parameter.opts, *parameter.secondary_opts))


def _keys(whole: Any, part: Any, path: str) -> Iterator[str]:
    """Paths of all keys that a JSON schema names, and the values that it lists."""
    if isinstance(part, list):
        for one in part:
            yield from _keys(whole, one, path)
    elif isinstance(part, dict):
        for name, below in part.items():
            if name == "$ref":
                yield from _keys(whole, whole["definitions"][below.rpartition("/")[2]], path)
            elif name == "properties":
                for key, value in below.items():
                    yield f"{path}/{key}"
                    yield from _keys(whole, value, f"{path}/{key}")
            elif name == "enum":
                yield from (f"{path}={one}" for one in below)
            elif name == "additionalProperties":
                yield from _keys(whole, below, f"{path}/*")
            elif name != "definitions":
                yield from _keys(whole, below, path)


def _literals() -> Iterator[str]:
    declared = {*BROKER_SETTINGS, *TOPIC_SETTINGS}
    for file in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
                text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
                if _LITERAL.fullmatch(text) and text not in declared and not _is_module(text):
                    yield text


def _is_module(name: str) -> bool:
    if not _MODULE.fullmatch(name):
        return False
    path = SOURCES.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help="write the file")
    action.add_argument("--check", action="store_true", help="print the differences; this is the default")
    options = parser.parse_args()
    text = render()
    if options.write:
        TARGET.write_text(text)
        print(f"wrote {TARGET}")
        return 0
    stored = TARGET.read_text() if TARGET.exists() else ""
    if stored == text:
        return 0
    print(
        *difflib.unified_diff(stored.splitlines(), text.splitlines(), "stored", "declared", lineterm="", n=0),
        sep="\n",
    )
    print(RENEW)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
