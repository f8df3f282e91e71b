"""`docs/deployment.md` (B11) names files that are there and commands that FlintMQ understands."""

from __future__ import annotations

import re
import shlex

import pytest

from unit.deploy.deployment_files import DEPLOY, ROOT, parse_command

TEXT = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
_BLOCKS = re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
LINES = [line.split("#")[0].strip() for block in _BLOCKS for line in block.splitlines()]
COMMANDS = [
    line[match.end() :] for line in LINES if (match := re.search(r"(?:^|/bin/| exec flintmq )flintmq ", line))
]


def test_every_part_of_deploy_is_described() -> None:
    paths = set(re.findall(r"\bdeploy/([\w.-]+)", TEXT))
    assert {path.name for path in DEPLOY.iterdir()} == paths


def test_every_file_that_is_named_exists() -> None:
    named = re.findall(r"\b(?:deploy|docs|locks)/[\w./-]*\w", TEXT)
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_understood(command: str) -> None:
    assert parse_command(shlex.split(command))


def test_commands_are_found() -> None:
    named = [
        line for line in LINES if "bin/flintmq " in line or " topic " in line or line.startswith("flintmq ")
    ]
    assert len(COMMANDS) == len(named) > 2
