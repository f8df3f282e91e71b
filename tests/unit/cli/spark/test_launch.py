"""How `flintmq spark` starts Spark's own programs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import pytest

from flintmq.cli.common.exit_codes import UsageFailure
from flintmq.cli.spark import launch as spark_launch
from flintmq.cli.spark.launch import master_of, plan_launch, spark_home, split_options
from flintmq.spark.session import NEEDED


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
