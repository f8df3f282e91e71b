"""Options that the commands of `flintmq lake` share: where the tables are, and the Spark that works on them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flintmq.cli.common.exit_codes import CommandFailure
from flintmq.cli.common.output import note
from flintmq.cli.common.warm_session import attach_to_warm_session
from flintmq.cli.lake.pandas_shim import leave_out_pandas
from flintmq.errors import FlintError
from flintmq.spark.lazy_session import LazySession

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
            help="The directory, or the bucket and prefix, of the tables; each has its topic's name.",
        ),
    ):
        command = option(command)
    return command


def value_options(command: F) -> F:
    """`registry`, `subject`, `message`, `into`: what beside the schema says how values are read."""
    for option in (
        click.option(
            "--into",
            default=None,
            metavar="COLUMN",
            help="One column for all decoded fields. [one for each]",
        ),
        click.option("--message", default=None, help="Protobuf: the message in the schema. [the first]"),
        click.option("--subject", default=None, help="The registry's subject of the schemas. [TOPIC-value]"),
        click.option(
            "--registry",
            default=None,
            metavar="URL",
            help="A schema registry; values begin with the id of their schema.",
        ),
    ):
        command = option(command)
    return command


def schema_option(default: str) -> Callable[[F], F]:
    """`schema`; `default` is what the help says of a command without it."""
    return click.option(
        "--schema",
        multiple=True,
        callback=_only_one,
        metavar="FILE|TEXT",
        help=f"The schema of values: a file, or for JSON a text such as 'id long'. [{default}]",
    )


def _only_one(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
    if len(values) > 1:
        raise click.BadParameter("it is given twice; name all columns in one schema", context, option)
    return values[0] if values else None


quarantine_option = click.option(
    "--quarantine",
    default="table",
    show_default=True,
    metavar="table|topic:NAME",
    help="The destination of records that cannot be decoded: the table TOPIC__quarantine, or a topic.",
)
file_size_option = click.option(
    "--file-size",
    default="128MiB",
    show_default=True,
    help="The size of the part of a topic that one file holds.",
)


def spark_options(command: F) -> F:
    """`master`, `remote`."""
    for option in (
        click.option("--remote", default=None, metavar="sc://…", help="A Spark Connect server to use."),
        click.option(
            "--master",
            default=None,
            help="The Spark master, used for small work too. "
            "[no Spark for small work; else the session of `flintmq spark up`, or local[*]]",
        ),
    ):
        command = option(command)
    return command


def check_installed() -> None:
    """Check that the extra of the package is there that the lake needs, before any of it is used."""
    for name in ("pyarrow", "obstore", "pyspark"):
        if find_spec(name) is None:
            raise CommandFailure(
                f"{name} is not installed; get all that it takes with: pip install 'flintmq[spark]'"
            )
    leave_out_pandas()


def open_session(master: str | None, remote: str | None, *, is_long: bool = False) -> LazySession:
    """Return a session that the first job opens.

    Without a master and a remote, small work is done in this process, and other work by the session that `flintmq
    spark up` keeps, if there is one. A command that runs for long (`is_long`) has a session of its own.
    """
    is_asked_for = master is not None or remote is not None

    def open() -> SparkSession:
        if not is_asked_for and not is_long and (warm := attach_to_warm_session()) is not None:
            session.why_gone = warm.why_gone
            return warm.spark
        if remote is None:
            note("starting Spark")
        return new_session(master=master, remote=remote)

    session = LazySession(open, is_optional=not is_asked_for)
    return session


def new_session(*, master: str | None = None, remote: str | None = None) -> SparkSession:
    from flintmq.spark.session import session

    try:
        return session(master=master, remote=remote, app_name="flintmq-lake")
    except FlintError:
        raise
    except Exception as error:
        # Spark's exceptions have no common base over both kinds of sessions.
        where = f"Spark at {remote} cannot be reached" if remote else "Spark does not start"
        advice = "see to the server" if remote else "`flintmq spark doctor --start` says what is wrong"
        raise CommandFailure(f"{where}: {first_line(error)}; {advice}") from error


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
