"""The tables of commands, their help, and how errors end them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from flintmq.cli.common.command import Command, LazyGroup
from flintmq.cli.common.exit_codes import Exit, failure_of
from flintmq.cli.main import main
from flintmq.client.addresses import Address
from flintmq.client.errors import ConnectionLost, NoBrokerReached
from flintmq.errors import ConfigurationError, ErrorCode, FlintError, RequestError


def every_command(
    group: LazyGroup = main, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command, str]]:
    context = click.Context(group)
    for name, entry in group.entries.items():
        found = group.get_command(context, name)
        assert found is not None
        yield (*path, name), found, entry.summary
        if isinstance(found, LazyGroup):
            yield from every_command(found, (*path, name))


@pytest.mark.parametrize(
    ("path", "command", "summary"), list(every_command()), ids=lambda value: str(value)[:20]
)
def test_every_command_says_what_it_does_in_the_same_words_as_its_group(
    path: tuple[str, ...], command: click.Command, summary: str
) -> None:
    assert command.name == path[-1]
    assert (command.help or "").splitlines()[0] == summary


@pytest.mark.parametrize(
    ("path", "command"),
    [(path, command) for path, command, _ in every_command() if isinstance(command, Command)],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_every_command_s_help_has_an_example_of_itself_and_its_exit_codes(
    path: tuple[str, ...], command: Command
) -> None:
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0
    assert "Exit codes:" in result.output
    assert all(f"flintmq {' '.join(path)}" in example for example in command.examples)
    assert command.examples
    assert all(example in result.output for example in command.examples)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), Exit.USAGE),
        (NoBrokerReached([(Address("h", 1), "refused")]), Exit.NO_BROKER),
        (ConnectionLost(Address("h", 1), "reset"), Exit.FAILED),
        (RequestError(ErrorCode.INVALID_CONFIG, "x"), Exit.FAILED),
    ],
)
def test_the_kind_of_error_decides_the_exit_code(error: FlintError, code: Exit) -> None:
    failure = failure_of(error)
    assert failure.exit_code == code
    assert str(error) in failure.message


def test_an_unknown_command_suggests_the_near_one() -> None:
    result = CliRunner().invoke(main, ["topics"])
    assert result.exit_code == Exit.USAGE
    assert "did you mean topic?" in result.output


def test_help_and_serve_load_nothing_that_they_do_not_need() -> None:
    script = """
import sys
from click.testing import CliRunner
from flintmq.cli.main import main
for arguments in (["--help"], ["serve", "--help"]):
    assert CliRunner().invoke(main, arguments).exit_code == 0
heavy = {"rich", "asyncio", "yaml", "flintmq.protocol", "flintmq.client.cluster", "flintmq.app.broker"}
print(sorted(heavy & set(sys.modules)))
"""
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
