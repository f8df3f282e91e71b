"""The commands of docs/security.md, from nothing to a secured broker with two users, as they are written there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.broker.broker_process import clean_environment, closed_port

DOCUMENT = Path(__file__).parents[3] / "docs" / "security.md"
SECTION = "## A secured broker in five minutes"
TIMEOUT_S = 60


def blocks() -> list[str]:
    text = DOCUMENT.read_text().partition(SECTION)[2].partition("\n## ")[0]
    return [
        textwrap.dedent(one) for one in re.findall(r"^ *```sh\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    ]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With `flintmq` on the path, as an installation has it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "flintmq"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m flintmq "$@"\n')
    program.chmod(0o755)
    found = clean_environment()
    return {**found, "PATH": f"{programs}{os.pathsep}{found['PATH']}"}


@contextmanager
def running(command: str, directory: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        ["sh", "-c", f"exec {command.strip()} --set flint.rest.port=-1"],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)


def test_the_commands_do_what_they_say(tmp_path: Path, environment: dict[str, str]) -> None:
    directory = tmp_path / "work"
    directory.mkdir()
    port = str(closed_port())
    prepare, serve, *steps, denied = [one.replace("9093", port) for one in blocks()]
    assert len(steps) == 3

    def shell(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-e", "-c", text],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    first = shell(prepare)
    assert first.returncode == 0, first.stderr
    with running(serve, directory, environment) as broker:
        assert broker.stdout is not None
        assert any(line.startswith("ready") for line in broker.stdout)
        # One shell for all of them, as a reader has it.
        used = shell("".join(steps))
        assert used.returncode == 0, used.stdout + used.stderr
        assert "hello, alice" in used.stdout
        refused = shell("\n".join([*steps[:1], "export FLINTMQ_COMMAND_CONFIG=alice.properties", denied]))
        assert refused.returncode == 1
        assert "User:alice needs an ACL that allows DELETE" in refused.stderr
    assert broker.returncode == 0
