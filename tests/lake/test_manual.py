"""docs/lake.md: its tutorial works word for word, and it names every command and option there is."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")

from flintmq.cli.lake.main import command as lake
from support.broker.broker_process import BrokerProcess

MANUAL = (Path(__file__).resolve().parents[2] / "docs" / "lake.md").read_text()
TUTORIAL = MANUAL.partition("\n## A tutorial\n")[2].partition("\n## ")[0]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STEP_TIMEOUT_S = 300.0

# What the test does by itself.
NOT_RUN = ("pip install", "./flint lake --help", "flintmq serve")


class Step(NamedTuple):
    """Commands, and what they print."""

    commands: str
    expected: str


def commands() -> dict[str, click.Command]:
    return dict(below(lake))


def below(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """By name, which for a command of a group within has two words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from ((f"{name} {inner}", one) for inner, one in below(found))
        elif found is not None:
            yield name, found


def blocks(text: str, kind: str) -> list[str]:
    return [body for found, body in BLOCK.findall(text) if found == kind]


def steps() -> Iterator[Step]:
    pairs = BLOCK.findall(TUTORIAL)
    for at, (kind, body) in enumerate(pairs):
        if kind == "sh" and not body.startswith(NOT_RUN):
            following = pairs[at + 1] if at + 1 < len(pairs) else ("", "")
            yield Step(body, following[1] if following[0] == "text" else "")


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def test_every_command_is_in_the_manual() -> None:
    assert len(commands()) >= 8
    for name in commands():
        assert f"| `flintmq lake {name}` |" in MANUAL


def options_table() -> str:
    found: dict[tuple[str, str, str], list[str]] = {}
    for name, command in commands().items():
        for option in command.params:
            if isinstance(option, click.Option):
                flag = " ".join((option.opts[-1], option.metavar or "")).strip()
                if isinstance(option.type, click.Choice):
                    flag = f"{flag} {'|'.join(option.type.choices)}"
                default = (
                    "required" if option.required else str(option.default) if option.show_default else ""
                )
                found.setdefault((flag, default, option.help or ""), []).append(name)
    count = len(commands())
    return "\n".join(
        f"| `{cell(flag)}` | {'all' if len(names) == count else ', '.join(names)} | {default} | {cell(meaning)} |"
        for (flag, default, meaning), names in found.items()
    )


def test_every_option_is_in_the_manual_in_the_words_of_its_help() -> None:
    assert options_table() in MANUAL, f"put this into docs/lake.md:\n{options_table()}"


def test_commands_in_the_manual_are_spelled_as_the_program_has_them() -> None:
    lines = [line for block in blocks(MANUAL, "sh") for line in block.splitlines()]
    texts = [line for line in lines if line.startswith("flintmq lake ")]
    texts += re.findall(r"`(flintmq lake \w+ [^`…]*--to [^`…]*)`", MANUAL)
    assert len(texts) > 15
    for text in texts:
        name, *arguments = shlex.split(re.split(r"[>|]", text)[0].strip())[2:]
        if name not in commands():
            name, arguments = f"{name} {arguments[0]}", arguments[1:]
        # Raises what a user would see.
        commands()[name].make_context(name, arguments)


def test_the_tutorial_shows_every_command() -> None:
    text = "\n".join(one.commands for one in steps())
    shown = set(re.findall(r"^flintmq lake (quarantine \w+|\w+)", text, re.MULTILINE))
    assert shown == set(commands())


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_tutorial_works_word_for_word(tmp_path: Path) -> None:
    for name in ("pyspark", "duckdb", "deltalake", "pyiceberg"):
        pytest.importorskip(name, reason=f"toolchain: {name}")
    folder = tmp_path / "empty"
    folder.mkdir()
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, line in (
        ("flintmq", f'exec {sys.executable} -m flintmq "$@"'),
        ("python", f'exec {sys.executable} "$@"'),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    with BrokerProcess(tmp_path / "broker" / "data") as broker:
        environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "FLINTMQ_BOOTSTRAP_SERVERS": broker.address,
        }
        for step in steps():
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", step.commands],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=STEP_TIMEOUT_S,
            )
            assert done.returncode == 0, (step.commands, done.stdout, done.stderr[-4000:])
            if step.expected:
                pattern = ".*".join(re.escape(part) for part in step.expected.split("…"))
                assert re.fullmatch(pattern, done.stdout), (step.commands, done.stdout)
