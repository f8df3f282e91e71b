"""The house stays tidy: small directories and modules, no dead module, every package named in the architecture."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"
PACKAGE = SOURCES / "flintmq"
ARCHITECTURE = ROOT / "docs" / "architecture.md"

MODULES_MAX = 25
LINES_MAX = 500
SAME_PREFIX_MAX = 4

# Classes of the public interface, whose names were given before this rule.
PUBLIC = {"Broker", "Change", "Problem", "Record", "State"}


def modules(*roots: Path) -> Iterator[Path]:
    for root in roots:
        yield from (path for path in sorted(root.rglob("*.py")) if "__pycache__" not in path.parts)


def directories(*roots: Path) -> dict[Path, list[str]]:
    """Return the names of the modules in each directory."""
    found = defaultdict(list)
    for path in modules(*roots):
        if path.stem != "__init__":
            found[path.parent].append(path.stem)
    return found


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")


def test_a_directory_can_be_looked_over() -> None:
    crowded = {
        str(directory.relative_to(ROOT)): len(names)
        for directory, names in directories(PACKAGE, ROOT / "tests", ROOT / "bench").items()
        if len(names) > MODULES_MAX
    }
    assert not crowded, f"more than {MODULES_MAX} modules: make packages by subject"


def test_a_module_is_read_in_one_sitting() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in modules(PACKAGE, ROOT / "tests", ROOT / "bench", ROOT / "scripts")
        if (lines := len(path.read_text().splitlines())) > LINES_MAX
    }
    assert not long, f"more than {LINES_MAX} lines: split by subject"


def test_modules_with_one_prefix_are_a_package() -> None:
    families = {}
    for directory, names in directories(PACKAGE, ROOT / "tests", ROOT / "bench").items():
        prefixes = Counter(name.removeprefix("test_").partition("_")[0] for name in names)
        for prefix, count in prefixes.items():
            if count > SAME_PREFIX_MAX:
                families[f"{directory.relative_to(ROOT)}/{prefix}_*"] = count
    assert not families, "these are a package"


def test_every_module_is_used() -> None:
    """By an import, or by a text that is a module's path: a lazy command, an entry point, `python -m`."""
    used = set()
    for path in modules(SOURCES):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                used.add(node.module)
                used.update(f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                used.update(alias.name for alias in node.names)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                used.update(re.findall(r"flintmq(?:\.\w+)+", node.value))
                # The tables of lazy names give modules of their own package.
                used.add(f"{name_of(path)}.{node.value}")
    used.update(re.findall(r"flintmq(?:\.\w+)+", (ROOT / "pyproject.toml").read_text()))
    # For tests and for users, not for the broker.
    simulation = "flintmq.testing.simulation"
    unused = [
        name
        for path in modules(PACKAGE)
        if path.stem not in ("__init__", "__main__")
        and (name := name_of(path)) not in used
        and not name.startswith(simulation)
    ]
    assert not unused


def test_a_class_is_known_by_its_name() -> None:
    homes = defaultdict(list)
    for path in modules(PACKAGE):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name_of(path))
    ambiguous = {name: where for name, where in homes.items() if len(where) > 1 and name not in PUBLIC}
    assert not ambiguous, "two classes with one name"


def test_the_architecture_names_every_package() -> None:
    text = ARCHITECTURE.read_text()
    packages = {path.parent for path in modules(PACKAGE) if path.stem == "__init__"} - {PACKAGE}
    unnamed = [
        name
        for path in sorted(packages)
        if f"`{(name := path.relative_to(PACKAGE).as_posix())}/`" not in text
    ]
    assert not unnamed, "docs/architecture.md says what is in each package"


def test_unit_tests_stand_where_their_module_stands() -> None:
    units = ROOT / "tests" / "unit"
    homes = (PACKAGE, ROOT / "bench", ROOT)
    strays = []
    for path in modules(units):
        if not path.stem.startswith("test_"):
            continue
        place = path.parent.relative_to(units)
        if place.parts and place.parts[0] in ("bench", "build", "deploy"):
            continue
        if not any((home / place).is_dir() for home in homes[:1]):
            strays.append(str(path.relative_to(ROOT)))
    assert not strays, "tests/unit/<path of the module>/test_<module>.py"
