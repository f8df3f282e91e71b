"""`flintmq pipeline validate` and `plan`, as they are typed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flintmq.cli.main import main
from flintmq.errors import ConfigurationError
from flintmq.pipeline import load
from flintmq.pipeline.runtime.control import Control

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


def test_the_schema_is_printed_as_the_documents_have_it() -> None:
    result = CliRunner().invoke(main, ["pipeline", "schema"])
    assert result.exit_code == 0
    kept = Path(__file__).parents[3] / "docs" / "pipelines.schema.json"
    assert result.stdout == kept.read_text(encoding="utf-8")


def test_neither_spark_nor_arrow_nor_a_connection_is_needed(folder: Path) -> None:
    script = """
import sys
for name in ("pyarrow", "pyspark", "numpy", "pandas", "socket"):
    sys.modules[name] = None
from flintmq.pipeline import load
from flintmq.pipeline.plan.drawing import draw
draw(load("good.yaml"))
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def _asked(command: str) -> Result:
    return CliRunner().invoke(main, ["pipeline", command, "good.yaml"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "status.json is damaged (Expecting"),
        ("[]", "status.json is damaged"),
        ('{"state": "running"}', "status.json is damaged (it has no dead_letters)"),
    ],
)
def test_a_damaged_status_is_no_traceback(folder: Path, text: str, words: str) -> None:
    (folder / ".flint" / "x").mkdir(parents=True)
    (folder / ".flint" / "x" / "status.json").write_text(text, encoding="utf-8")
    result = _asked("status")
    assert result.exit_code == 1
    assert words in result.stderr
    assert "remove it" in result.stderr


def test_a_checkpoint_that_is_a_file_is_no_traceback(folder: Path) -> None:
    (folder / ".flint").mkdir()
    (folder / ".flint" / "x").write_text("in the way", encoding="utf-8")
    result = _asked("status")
    assert result.exit_code == 2
    assert "is a file; name a folder with `checkpoint`" in result.stderr
    assert _asked("stop").exit_code == 0


def test_a_checkpoint_that_cannot_be_made_is_told() -> None:
    with pytest.raises(ConfigurationError, match=r"/proc/nope cannot be written: .*; name a folder"):
        Control("/proc/nope", "x").__enter__()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("{", "is damaged"),
        ("[1]", "is damaged"),
        ('{"version": 1}', "it has no 'nodes'"),
        ('{"version": 1, "id": "i", "name": "x", "schemas": {}, "nodes": {"a": [1]}}', "is damaged"),
        ('{"version": 2}', "a newer FlintMQ"),
    ],
)
def test_a_damaged_checkpoint_is_told_with_what_to_do(folder: Path, data: str, words: str) -> None:
    pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")
    from flintmq.pipeline.runtime.checkpoint import Checkpoint

    (folder / ".flint" / "x").mkdir(parents=True)
    (folder / ".flint" / "x" / "pipeline.json").write_text(data, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        Checkpoint.open(load("good.yaml"))
