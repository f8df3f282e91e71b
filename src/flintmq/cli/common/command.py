"""What all commands share: help that ends with examples and exit codes, and groups that load what is called.

Invariant: `--help` of a group and the start of one command import no other command. A command's module is
named in its group's table together with the line that the group's help shows for it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from flintmq.cli.common.exit_codes import REMOTE_CODES, Exit, failure_of
from flintmq.errors import FlintError


class CommandEntry(NamedTuple):
    module: str
    """Has the command as its attribute `command`."""
    summary: str


class Command(click.Command):
    """A command whose help teaches: examples and exit codes at its end."""

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str] = (),
        exit_codes: Mapping[Exit, str] = REMOTE_CODES,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.exit_codes = dict(exit_codes)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), words) for code, words in sorted(self.exit_codes.items())])


class LazyGroup(click.Group):
    def __init__(self, *args: Any, entries: Mapping[str, CommandEntry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.entries = dict(entries)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        found = importlib.import_module(entry.module).command
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.entries.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.entries and not name.startswith("-"):
            from flintmq.settings.declaration import nearest

            guess = nearest(name, self.entries)
            ctx.fail(f"there is no command {name!r}" + (f"; did you mean {guess}?" if guess else "."))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        try:
            return super().invoke(ctx)
        except FlintError as error:
            raise failure_of(error) from error
