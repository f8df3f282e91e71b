"""`flintmq pipeline schema`: the JSON schema of a pipeline's file."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.exit_codes import Exit


@click.command(
    "schema",
    cls=Command,
    examples=("flintmq pipeline schema > pipelines.schema.json",),
    exit_codes={Exit.OK: "done", Exit.USAGE: "wrong usage"},
)
def command() -> None:
    """Print the JSON schema of a pipeline's file, for editors.

    They find it by the first line of the file, and then know names, meanings and choices:

    \b
    # yaml-language-server: $schema=pipelines.schema.json
    """
    from flintmq.pipeline.spec.json_schema import render_schema

    click.echo(render_schema(), nl=False)
