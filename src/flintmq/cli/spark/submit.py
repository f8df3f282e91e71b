"""`flintmq spark submit`: a program on Spark, here or on a cluster."""

from __future__ import annotations

import os

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.exit_codes import LOCAL_CODES, Exit
from flintmq.cli.spark.launch import plan_launch


@click.command(
    "submit",
    cls=Command,
    examples=(
        "flintmq spark submit job.py",
        "flintmq spark submit job.py --day 2026-01-31",
        "flintmq spark submit --master spark://head:7077 --executor-memory 4g job.py",
        "flintmq spark submit --conf spark.sql.shuffle.partitions=64 job.py",
    ),
    exit_codes={**LOCAL_CODES, Exit.FAILED: "the program failed, and others as it ends with"},
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument(
    "arguments",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    metavar="[SPARK OPTION]... SCRIPT [ARGUMENT]...",
)
def command(arguments: tuple[str, ...]) -> None:
    """Run a program on Spark, here or on a cluster.

    Java is found or provided, and workers run this Python unless PYSPARK_PYTHON names another. What stands before
    the script goes to spark-submit, what stands after it to the script. Without --master (or MASTER in the
    environment) it is local[*]: this machine, all cores.
    """
    plan_launch("spark-submit", arguments, os.environ).replace_this_process()
