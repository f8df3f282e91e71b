"""`flintmq spark`: what is handed to Spark's programs, and what the doctor says."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import pytest

from flintmq.cli.common.exit_codes import UsageFailure
from flintmq.cli.spark import checks
from flintmq.cli.spark import launch as spark_launch
from flintmq.cli.spark.checks import (
    CheckState,
    Requirement,
    check_all,
    check_disk,
    check_home,
    check_memory,
    check_package,
)
from flintmq.cli.spark.launch import master_of, plan_launch, spark_home, split_options
from flintmq.spark.java_home import Java
from flintmq.spark.session import NEEDED, heap_gib

GIB = 1 << 30


@pytest.fixture
def java(tmp_path: Path) -> str:
    """A home of Java, as far as anybody looks."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    (home / "release").write_text('JAVA_VERSION="17.0.1"')
    return str(home)


@pytest.fixture
def pyspark(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(spark_launch, "spark_home", lambda: "/pyspark")
    return "/pyspark"


@pytest.mark.parametrize(
    ("arguments", "options", "application"),
    [
        (["job.py", "--master", "x"], [], ["job.py", "--master", "x"]),
        (["--master", "yarn", "job.py"], ["--master", "yarn"], ["job.py"]),
        (["--master=yarn", "-v", "job.py", "-v"], ["--master=yarn", "-v"], ["job.py", "-v"]),
        (["--supervise", "--conf", "a=b", "job.py"], ["--supervise", "--conf", "a=b"], ["job.py"]),
        (["--conf"], ["--conf"], []),
        ([], [], []),
    ],
)
def test_what_stands_before_the_script_is_sparks(
    arguments: list[str], options: list[str], application: list[str]
) -> None:
    assert split_options(arguments) == (options, application)


@pytest.mark.parametrize(
    ("options", "master"),
    [
        ([], None),
        (["--verbose", "--conf", "spark.x=--master"], None),
        (["--master", "local[2]"], "local[2]"),
        (["--master=spark://a:7077", "--name", "x"], "spark://a:7077"),
        (["--conf", "spark.master=yarn"], "yarn"),
        (["--conf=spark.master=yarn", "--master", "local"], "local"),
        (["--master", "local", "-c", "spark.master=yarn"], "local"),
        (["--master"], ""),
    ],
)
def test_the_master_is_found_as_spark_would_take_it(options: list[str], master: str | None) -> None:
    assert master_of(options) == master


def test_a_program_runs_on_this_machine_unless_it_says_otherwise(pyspark: str, java: str) -> None:
    launch = plan_launch(
        "spark-submit",
        ["--conf", "spark.driver.memory=3g", "job.py", "x"],
        {"PATH": "/bin", "JAVA_HOME": java},
    )
    assert launch.program == "/pyspark/bin/spark-submit"
    assert launch.arguments[:2] == ["--master", "local[*]"]
    assert launch.arguments[-4:] == ["--conf", "spark.driver.memory=3g", "job.py", "x"]
    assert "spark.sql.python.filterPushdown.enabled=true" in launch.arguments
    assert launch.environment["JAVA_HOME"] == java
    assert launch.environment["PYSPARK_PYTHON"] == sys.executable
    assert launch.environment["SPARK_HOME"] == pyspark
    assert launch.environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert launch.environment["PATH"] == "/bin"


def test_a_cluster_keeps_its_own_sizes_and_addresses(pyspark: str, java: str) -> None:
    launch = plan_launch("spark-submit", ["--master", "spark://head:7077", "job.py"], {"JAVA_HOME": java})
    settings = [one for one in launch.arguments if one.startswith("spark.")]
    assert settings == [f"{name}={value}" for name, value in NEEDED.items()]
    assert launch.arguments.count("--master") == 1
    assert "SPARK_LOCAL_IP" not in launch.environment


def test_the_master_of_the_environment_is_taken(pyspark: str, java: str) -> None:
    launch = plan_launch("pyspark", [], {"MASTER": "spark://head:7077", "JAVA_HOME": java})
    assert launch.arguments[:2] == ["--master", "spark://head:7077"]
    assert not any("driver.memory" in one for one in launch.arguments)


def test_a_remote_shell_gets_no_master(pyspark: str, java: str) -> None:
    launch = plan_launch("pyspark", ["--remote", "sc://head:15002"], {"MASTER": "local", "JAVA_HOME": java})
    assert launch.arguments == ["--remote", "sc://head:15002"]


def test_what_the_environment_names_is_kept(pyspark: str, java: str) -> None:
    given = {"PYSPARK_PYTHON": "/venv/python", "SPARK_LOCAL_IP": "10.0.0.1", "JAVA_HOME": java}
    launch = plan_launch("pyspark", [], given)
    assert {name: launch.environment[name] for name in given} == given


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageFailure, match=r"pip install 'flintmq\[spark\]'"):
        spark_home()


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
