"""Options that the commands of `flintmq lake` share: where the tables are, and the Spark that works on them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flintmq.cli.common.exit_codes import CommandFailure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("parquet", "iceberg", "delta")


def place_options(command: F) -> F:
    """`to`, `table_format`, `catalog`, `namespace`, `store`."""
    for option in (
        click.option(
            "--store",
            "store",
            multiple=True,
            metavar="NAME=VALUE",
            help="A setting of the object store, such as endpoint=http://127.0.0.1:9000; also AWS_…, GOOGLE_… and "
            "AZURE_… variables.",
        ),
        click.option("--namespace", default=None, help="Iceberg: the namespace in the catalog. [flintmq]"),
        click.option(
            "--catalog",
            default=None,
            metavar="NAME",
            help="Iceberg: a catalog that pyiceberg knows, or sqlite:///FILE. [catalog.db beside the tables]",
        ),
        click.option(
            "--format", "table_format", type=click.Choice(FORMATS), default="parquet", show_default=True
        ),
        click.option(
            "--to",
            "to",
            required=True,
            metavar="DIR|s3://…|gs://…|az://…",
            help="The folder, or the bucket and prefix, that holds the tables; each has its topic's name.",
        ),
    ):
        command = option(command)
    return command


def spark_options(command: F) -> F:
    """`master`, `remote`."""
    for option in (
        click.option("--remote", default=None, metavar="sc://…", help="A Spark Connect server to work on."),
        click.option("--master", default=None, help="Where Spark works. [local[*]: this machine]"),
    ):
        command = option(command)
    return command


def check_installed() -> None:
    """What the lake needs is an extra of the package."""
    for name in ("pyarrow", "obstore", "pyspark"):
        if find_spec(name) is None:
            raise CommandFailure(
                f"{name} is not installed; get all that it takes with: pip install 'flintmq[spark]'"
            )


def open_session(master: str | None, remote: str | None) -> SparkSession:
    check_installed()
    from flintmq.spark.session import session

    return session(master=master, remote=remote, app_name="flintmq-lake")
