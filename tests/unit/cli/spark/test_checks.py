"""What `flintmq spark doctor` checks."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import pytest

from flintmq.cli.spark import checks
from flintmq.cli.spark.checks import (
    CheckState,
    Requirement,
    check_all,
    check_disk,
    check_home,
    check_memory,
    check_package,
)
from flintmq.spark.java_home import Java
from flintmq.spark.session import heap_gib

GIB = 1 << 30


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("2.1", CheckState.BAD),
        ("2.2.0", CheckState.OK),
        ("2.10.dev1", CheckState.OK),
        ("3.0rc1", CheckState.BAD),
    ],
)
def test_a_package_must_be_of_the_wanted_range(
    monkeypatch: pytest.MonkeyPatch, version: str, state: CheckState
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    found = check_package(Requirement("pandas", (2, 2), (3,)))
    assert found.state is state
    if state is CheckState.BAD:
        assert "2.2 or newer, before 3" in found.said


def test_a_missing_package_is_missed() -> None:
    found = check_package(Requirement("no-such-package", (1,), (2,)))
    assert (found.state, found.said) == (CheckState.BAD, "not installed")


def test_little_memory_is_remarked_upon_and_much_gives_a_heap() -> None:
    assert check_memory(GIB).state is CheckState.ADVICE
    assert "heap here is 4 GiB" in check_memory(16 * GIB).said
    assert (heap_gib(2 * GIB), heap_gib(400 * GIB)) == (1, 8)


def test_the_folder_for_spilling_must_be_there(tmp_path: Path) -> None:
    assert check_disk({"SPARK_LOCAL_DIRS": f"{tmp_path},/other"}).said.endswith(f"free in {tmp_path}")
    found = check_disk({"SPARK_LOCAL_DIRS": str(tmp_path / "none")})
    assert (found.state, "SPARK_LOCAL_DIRS" in found.advice) == (CheckState.BAD, True)


def test_another_spark_in_the_environment_is_remarked_upon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(checks, "spark_home", lambda: str(tmp_path))
    assert check_home(str(tmp_path)).state is CheckState.OK
    assert check_home("/opt/spark").state is CheckState.ADVICE


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("echo 3.1", "is Python 3.1"),
        ("exit 1", "lacks FlintMQ"),
        (f"echo {sys.version_info[0]}.{sys.version_info[1]}", ""),
    ],
)
def test_the_workers_python_is_asked(tmp_path: Path, answer: str, said: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{answer}\n")
    python.chmod(0o755)
    found = checks.check_python({"PYSPARK_PYTHON": str(python)})
    assert (found.state is CheckState.BAD) == bool(said)
    assert said in found.said


def test_a_broker_is_asked_only_if_one_is_named() -> None:
    assert "broker" not in [one.subject for one in check_all({}, bootstrap=None)]
    found = [one for one in check_all({}, bootstrap="127.0.0.1:1") if one.subject == "broker"]
    assert [one.state for one in found] == [CheckState.BAD]


def test_a_java_home_that_is_passed_over_is_remarked_upon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_java", lambda _: Java("/java", "17.0.1", "PATH"))
    found = checks.check_java({"JAVA_HOME": "/old"})
    assert (found.state, "JAVA_HOME=/old" in found.advice) == (CheckState.ADVICE, True)
