"""The compiled core of a checkout: which one a process runs, and what its sources must not do."""

from __future__ import annotations

import ast
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
COMPILED: tuple[str, ...] = runpy.run_path(str(ROOT / "hatch_build.py"))["COMPILED"]
LIBRARIES = os.environ.get("FLINT_TEST_COMPILED") or os.environ.get("FLINTMQ_COMPILED") or ""


def version(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "flintmq", "version"],
        env={**os.environ, "FLINTMQ_COMPILED": "", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_version_says_which_core_runs() -> None:
    if not LIBRARIES:
        pytest.skip("toolchain: the core is not compiled, for want of a C compiler or Python's headers")
    assert "(compiled, " in version(FLINTMQ_COMPILED=LIBRARIES)
    assert "(uncompiled, " in version()


def test_without_the_libraries_the_sources_run(tmp_path: Path) -> None:
    assert "(uncompiled, " in version(FLINTMQ_COMPILED=str(tmp_path / "gone"))


def test_flint_runs_the_sources_where_it_is_told_to() -> None:
    done = subprocess.run(
        [str(ROOT / "flint"), "version"],
        env={**os.environ, "FLINTMQ_COMPILED": "", "FLINTMQ_COMPILE": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "(uncompiled, " in done.stdout


def test_flint_runs_the_sources_where_there_is_no_compiler_and_looks_again_next_time(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CC": str(tmp_path / "no-compiler")}
    environment.pop("FLINTMQ_COMPILE", None)
    for _ in range(2):
        done = subprocess.run(
            [str(ROOT / "flint"), "serve", "--help"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "A C compiler is not here" in done.stderr
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_every_compiled_module_is_imported_from_its_library() -> None:
    if not LIBRARIES:
        pytest.skip("toolchain: the core is not compiled, for want of a C compiler or Python's headers")
    names = [one.removesuffix(".py").replace("/", ".") for one in COMPILED]
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    print(name, importlib.import_module(name).__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *names],
        env={**os.environ, "FLINTMQ_COMPILED": LIBRARIES},
        capture_output=True,
        text=True,
        check=True,
    )
    files = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert [name for name, file in files.items() if not file.startswith(LIBRARIES)] == []
    assert list(files) == names


# -- what mypyc does not do as Python does


def trees() -> Iterator[tuple[str, ast.Module]]:
    for module in COMPILED:
        yield module, ast.parse((SOURCES / module).read_text())


def names_in(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, context)}


def is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"


def test_no_loop_changes_its_own_bound() -> None:
    """Compiled, `for _ in range(count)` looks at `count` in every turn."""
    found = []
    for module, tree in trees():
        for loop in ast.walk(tree):
            if isinstance(loop, ast.For) and is_range(loop.iter):
                changed = set().union(*(names_in(one, ast.Store) for one in loop.body))
                found += [(module, loop.lineno, name) for name in names_in(loop.iter, ast.Load) & changed]
    assert found == []


def test_no_generated_class_has_a_field_that_is_a_view() -> None:
    """Compiled, a NamedTuple or dataclass with a field of type `memoryview` cannot be imported."""
    found = []
    for module, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and (
                node.decorator_list or "NamedTuple" in map(ast.unparse, node.bases)
            ):
                fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
                found += [
                    (module, node.name) for one in fields if ast.unparse(one.annotation) == "memoryview"
                ]
    assert found == []


def test_nothing_is_yielded_or_awaited_while_an_exception_is_handled() -> None:
    """Compiled, the exception stays the current one of the thread, and of whatever runs there next."""
    found = []
    for module, tree in trees():
        for handler in ast.walk(tree):
            if isinstance(handler, ast.ExceptHandler):
                found += [
                    (module, one.lineno)
                    for one in ast.walk(handler)
                    if isinstance(one, ast.Yield | ast.YieldFrom | ast.Await)
                ]
    assert found == []
