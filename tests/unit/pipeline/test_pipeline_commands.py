"""`flintmq pipeline validate` and `plan`, as they are typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from flintmq.cli.main import main

GOOD = "name: x\nsources: {a: {topic: a}}\nsinks: {z: {from: a, console: 1}}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD, encoding="utf-8")
    (tmp_path / "bad.yaml").write_text(
        GOOD.replace("name: x", "name: y").replace("from: a", "from: b"), "utf-8"
    )
    return tmp_path


def test_a_good_file_is_said_to_be_valid(folder: Path) -> None:
    result = CliRunner().invoke(main, ["pipeline", "validate", "good.yaml"])
    assert result.exit_code == 0
    assert result.stdout == "good.yaml: x is valid: 1 source, 0 steps, 1 sink\n"


def test_a_bad_file_ends_with_1_and_all_that_is_wrong(folder: Path) -> None:
    result = CliRunner().invoke(main, ["pipeline", "validate", "good.yaml", "bad.yaml"])
    assert result.exit_code == 1
    assert "bad.yaml:3:19: error: there is no source or step `b`" in result.stderr
    assert result.stderr.endswith("1 error\n")
    assert result.stdout == "good.yaml: x is valid: 1 source, 0 steps, 1 sink\n"


def test_problems_are_told_as_json(folder: Path) -> None:
    result = CliRunner().invoke(main, ["pipeline", "validate", "bad.yaml", "--json"])
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert told["valid"] is False
    error = next(one for one in told["files"][0]["problems"] if one["severity"] == "error")
    assert error == {
        "severity": "error",
        "rule": "unknown-name",
        "file": "bad.yaml",
        "line": 3,
        "column": 19,
        "message": "there is no source or step `b`",
        "hint": "there is a",
    }


def test_a_file_that_is_not_there_is_no_traceback(folder: Path) -> None:
    result = CliRunner().invoke(main, ["pipeline", "validate", "no.yaml"])
    assert result.exit_code == 1
    assert "no.yaml: error: cannot be read: No such file or directory" in result.stderr


def test_plan_draws_a_good_file_and_only_that(folder: Path) -> None:
    result = CliRunner().invoke(main, ["pipeline", "plan", "good.yaml", "--ascii"])
    assert result.exit_code == 0
    assert "+- a - topic" in result.stdout
    assert result.stdout.isascii()
    result = CliRunner().invoke(main, ["pipeline", "plan", "bad.yaml"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "error: there is no source or step `b`" in result.stderr


def test_neither_spark_nor_arrow_nor_a_connection_is_needed(folder: Path) -> None:
    script = """
import sys
for name in ("pyarrow", "pyspark", "numpy", "pandas", "socket"):
    sys.modules[name] = None
from flintmq.pipeline import load
from flintmq.pipeline.drawing import draw
draw(load("good.yaml"))
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
