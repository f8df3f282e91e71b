"""`flintmq spark env`: the environment of Spark's own programs, for a shell to take over."""

from __future__ import annotations

import os
import shlex

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.exit_codes import LOCAL_CODES
from flintmq.cli.spark.launch import spark_home


@click.command(
    "env",
    cls=Command,
    examples=(
        'eval "$(flintmq spark env)"',
        'eval "$(flintmq spark env)"; "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.master.Master',
    ),
    exit_codes=LOCAL_CODES,
)
def command() -> None:
    """Print the environment for Spark's own programs, for a shell to run.

    With it spark-class, spark-sql and others of the PySpark that is installed here find Java, this Python and each
    other. `flintmq spark shell` and `flintmq spark submit` need none of it.
    """
    # Of a cluster: which address a machine is to be known by is not for us to say.
    from flintmq.spark.session import environment

    values = {**environment(os.environ, master="spark://"), "SPARK_HOME": spark_home()}
    for name, value in values.items():
        click.echo(f"export {name}={shlex.quote(value)}")
