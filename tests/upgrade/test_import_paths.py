"""Module paths that exist as text lead to modules: in tables of commands and lazy names, in tests, in documents."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.cli.main import main
from support.pipeline.pipeline_program import POINTS
from support.upgrade.paths import (
    DOCUMENTS,
    PACKAGES,
    ROOT,
    code_files,
    inline_paths,
    literals,
    names_in_code,
    parsed,
    paths_in,
    python_blocks,
)

SOURCES = ROOT / "src"
NO_MODULES = re.compile(
    # Headers of dead letters and of quarantined records.
    r"flintmq\.(attempt|checkpoint|error|lost|offset|partition|replays|step|topic)"
    r"|flintmq\.lake\.(error|offset|partition|table|timestamp|topic)"
    # Properties of tables and of their files.
    r"|flintmq\.(backfill|backfilled|bucket|dropped|fields\.extra|inputs|kind|partitioning|rebuilding|rebuilt)"
    r"|flintmq\.(renamed|shape)"
    r"|flintmq\.(progress|quarantine)\.\w+"
    # Runs only inside a shell, which defines names that it uses (tests/spark/test_clusters.py runs it).
    r"|flintmq\.spark\.shell_startup"
    # Groups of entry points.
    r"|flintmq\.(authorizers|authenticators)"
    # A table of an Iceberg catalog, a service, and loggers that tests make up.
    r"|flintmq\.(orders|service|messaging\.svc|test|no\.such\.logger)"
)


def unresolved(paths: Iterator[str] | set[str]) -> dict[str, str]:
    """Those that lead nowhere, with the reason."""
    found = {}
    for path in sorted(paths):
        if NO_MODULES.fullmatch(path):
            continue
        try:
            pkgutil.resolve_name(path)
        except (ImportError, AttributeError) as error:
            try:
                # A module of a package: `from package import module`.
                importlib.import_module(path.replace(":", "."))
            except ImportError:
                found[path] = str(error)
    return found


def test_every_command_is_loaded_from_its_module() -> None:
    def load(group: click.Command, path: str) -> Iterator[str]:
        if isinstance(group, click.Group):
            context = click.Context(group)
            for name in group.list_commands(context):
                command = group.get_command(context, name)
                assert command is not None, f"{path} {name}"
                yield f"{path} {name}"
                yield from load(command, f"{path} {name}")

    assert "flintmq topic compact" in list(load(main, "flintmq"))


def test_every_lazy_attribute_has_a_home() -> None:
    """Of modules with a `__getattr__`: the names of their table, and those of `__all__`."""
    tables = {}
    for file in sorted(SOURCES.rglob("*.py")):
        if not re.search(r"^def __getattr__\(", file.read_text(), re.MULTILINE):
            continue
        name = ".".join(file.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
        module = importlib.import_module(name)
        names = {*getattr(module, "_HOMES", ()), *getattr(module, "__all__", ())}
        tables[name] = {one: getattr(module, one) for one in names}
    assert {"flintmq.lake", "flintmq.pipeline", "flintmq.testing"} <= tables.keys()


def test_the_build_compiles_modules_that_exist() -> None:
    compiled = runpy.run_path(str(ROOT / "hatch_build.py"))["COMPILED"]
    assert compiled
    assert [one for one in compiled if not (SOURCES / one).is_file()] == []


def test_entry_points_and_packages_of_the_project_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    points = [*project["project"]["scripts"].values()]
    for group in project["project"]["entry-points"].values():
        points += group.values()
    assert unresolved(set(points)) == {}
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(packages) == [f"src/{one}" for one in PACKAGES]


def test_the_import_contracts_name_packages_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = set()
    for contract in project["tool"]["importlinter"]["contracts"]:
        for line in (*contract.get("layers", ()), *contract.get("source_modules", ())):
            named |= {one.strip() for one in line.split("|")}
    assert unresolved(named) == {}


@pytest.mark.parametrize("package", [one for one in PACKAGES if one.startswith("pyspark_")])
def test_spark_finds_its_data_sources(package: str) -> None:
    source = importlib.import_module(package).DefaultSource
    assert source.name() == package.removeprefix("pyspark_")


@pytest.mark.parametrize("point", POINTS)
def test_points_at_which_pipelines_are_killed_exist(point: str) -> None:
    found: Any = importlib.import_module(POINTS[point].module)
    for name in POINTS[point].function.split("."):
        found = getattr(found, name)
    assert callable(found)


def test_paths_in_string_literals_resolve() -> None:
    """Targets of monkeypatches, modules that are run with `-m`, programs in strings."""
    named = {path: file for file in code_files() for text in literals(file) for path in paths_in(text)}
    assert "flintmq.testing.plugin" in named
    assert {path: (named[path], why) for path, why in unresolved(set(named)).items()} == {}


def test_programs_use_names_that_exist() -> None:
    for file in code_files():
        if file.is_relative_to(ROOT / "src"):
            continue
        assert unresolved(names_in_code(parsed(file))) == {}, file


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: str(one.relative_to(ROOT)))
def test_documents_name_what_exists(document: Path) -> None:
    text = document.read_text()
    named = inline_paths(text)
    for block in python_blocks(text):
        named |= names_in_code(ast.walk(ast.parse(block)))
    assert unresolved(named) == {}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: str(one.relative_to(ROOT)))
def test_files_that_documents_name_exist(document: Path) -> None:
    text = document.read_text()
    rooms = "|".join(sorted(one.name for one in (SOURCES / "flintmq").iterdir() if one.is_dir()))
    missing = [
        path
        for path in re.findall(r"\b((?:src/flintmq|tests|scripts|bench|examples|deploy)/[\w./-]*\w)", text)
        if not (ROOT / path).exists()
    ]
    missing += [
        path
        for path in re.findall(r"`([a-z_]+/[a-z_/]*\.pyi?)`", text)
        if not any((base / path).exists() for base in (ROOT, SOURCES, SOURCES / "flintmq"))
    ]
    missing += [
        path
        for path in re.findall(rf"`((?:{rooms})/[a-z_/]+)`", text)
        if document.is_relative_to(ROOT / "docs")
        and not any((SOURCES / "flintmq" / f"{path.rstrip('/')}{end}").exists() for end in ("", ".py"))
    ]
    assert missing == []
