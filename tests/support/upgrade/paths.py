"""Module paths and names that exist as text: in string literals of code, and in documents."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[3]
CODE_DIRECTORIES = ("src", "tests", "bench", "scripts", "examples")
DOCUMENTS = (
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("examples/**/*.md")),
)
PACKAGES = tuple(sorted(one.name for one in (ROOT / "src").iterdir() if (one / "__init__.py").exists()))

_PATH = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.[A-Za-z_]\w*)+(?::[A-Za-z_][\w.]*)?")
_IMPORT = re.compile(
    rf"^\s*(?:from\s+(?:{'|'.join(PACKAGES)})\S*\s+import\s+[\w, ]+|import\s+(?:{'|'.join(PACKAGES)})\S*)",
    re.MULTILINE,
)
_RUN = re.compile(rf"-m[\s\",]+((?:{'|'.join(PACKAGES)})(?:\.\w+)*)")
_BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def code_files() -> list[Path]:
    return [file for one in CODE_DIRECTORIES for file in sorted((ROOT / one).rglob("*.py"))]


@cache
def parsed(file: Path) -> list[ast.AST]:
    """All nodes of a file's syntax tree."""
    return list(ast.walk(ast.parse(file.read_text())))


def literals(file: Path) -> Iterator[str]:
    """All string literals of a file, docstrings too."""
    for node in parsed(file):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def paths_in(text: str) -> set[str]:
    """What a string literal names: all of it is a dotted path, or it holds lines of code."""
    if _PATH.fullmatch(text):
        return {text}
    return imports_in(text) | set(_RUN.findall(text))


def imports_in(text: str) -> set[str]:
    """The modules and names that lines of code in a text import."""
    found: set[str] = set()
    for line in _IMPORT.findall(text):
        try:
            (statement,) = ast.parse(line.strip().rstrip(",")).body
        except SyntaxError:
            continue
        found |= _imported(statement)
    return found


def names_in_code(nodes: Iterable[ast.AST]) -> set[str]:
    """The dotted names of the package that a program imports or uses."""
    found: set[str] = set()
    for node in nodes:
        found |= _imported(node)
        if isinstance(node, ast.Attribute) and (name := _dotted(node)) is not None:
            found.add(name)
    return found


def python_blocks(document: str) -> Iterator[str]:
    for _, block in _BLOCK.findall(document):
        yield dedent(block)


def inline_paths(document: str) -> set[str]:
    """Dotted paths in backticks, with or without a call's parentheses."""
    found = re.findall(r"`([a-z_]+(?:\.\w+)+)(?:\([^`]*\))?`", document)
    return {one for one in found if _PATH.fullmatch(one)}


def _imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {one.name for one in node.names if one.name.partition(".")[0] in PACKAGES}
    if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES:
        return {f"{node.module}:{one.name}" for one in node.names if one.name != "*"}
    return set()


def _dotted(node: ast.expr) -> str | None:
    """The whole of `flintmq.a.b`; None for attributes of anything else."""
    if isinstance(node, ast.Attribute):
        above = _dotted(node.value)
        return None if above is None else f"{above}.{node.attr}"
    return node.id if isinstance(node, ast.Name) and node.id in PACKAGES else None
