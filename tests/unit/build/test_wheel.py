"""The wheels: plain Python anywhere, compiled where it is asked for, and both do the same (R3)."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bench.compiled import CannotBuild, build_wheel, unpack

ROOT = Path(__file__).parents[3]
COMPILED = (
    "flintmq.records.record_walk",
    "flintmq.storage.compaction.offset_map",
    "flintmq.storage.compaction.batch_filter",
)
LIBRARIES = (".so", ".pyd")


def wheel_in(folder: Path, *, compiled: bool) -> str:
    try:
        return build_wheel(str(folder), compiled=compiled)
    except CannotBuild as missing:
        pytest.skip(f"toolchain: wheels were not built, for want of {missing}")


def digest(package: Path, *, libraries: str = "") -> tuple[dict[str, str], str]:
    """Where the compiled modules come from, and what compaction leaves, with FlintMQ from these directories."""
    ran = subprocess.run(
        [sys.executable, "-m", "support.log.compaction_digest"],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(package), str(ROOT / "tests"))),
            "FLINTMQ_COMPILED": libraries,
        },
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stderr
    *modules, last = ran.stdout.splitlines()
    return dict(line.split(" ", 1) for line in modules), last


def test_a_wheel_is_plain_python_unless_it_is_asked_for(tmp_path: Path) -> None:
    wheel = wheel_in(tmp_path, compiled=False)
    assert wheel.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert not [name for name in names if name.endswith(LIBRARIES)]
    for module in COMPILED:
        assert f"{module.replace('.', '/')}.py" in names


def check_same_bytes(compiled_from: Path, found: tuple[dict[str, str], str]) -> None:
    compiled_files, compiled = found
    plain_files, plain = digest(ROOT / "src")
    assert set(plain_files) == set(compiled_files) == set(COMPILED)
    assert all(Path(file).suffix == ".py" for file in plain_files.values())
    for module, file in compiled_files.items():
        assert Path(file).is_relative_to(compiled_from), module
        assert file.endswith(LIBRARIES), module
    assert compiled == plain


def test_the_compiled_core_compacts_to_the_same_bytes() -> None:
    libraries = os.environ.get("FLINT_TEST_COMPILED") or os.environ.get("FLINTMQ_COMPILED")
    if not libraries:
        pytest.skip("toolchain: the core is not compiled, for want of a C compiler or Python's headers")
    check_same_bytes(Path(libraries), digest(ROOT / "src", libraries=libraries))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_compiled_wheel_compacts_to_the_same_bytes(tmp_path: Path) -> None:
    wheel = wheel_in(tmp_path, compiled=True)
    assert not wheel.endswith("-any.whl")
    package = Path(unpack(wheel, str(tmp_path / "package")))
    check_same_bytes(package, digest(package))
