"""`flintmq lake backfill`: columns that were added later, filled for older rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, client_security, json_option
from flintmq.cli.common.output import many, print_json
from flintmq.cli.common.progress import Progress
from flintmq.cli.lake.options import check_installed, open_session, place_options, spark_options

if TYPE_CHECKING:
    from flintmq.lake.backfill.backfill import BackfillReport


@click.command(
    "backfill",
    cls=Command,
    examples=(
        "flintmq lake backfill orders --to /srv/lake",
        "flintmq lake backfill orders --to s3://lake --format delta --column total --column currency",
    ),
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@place_options
@bootstrap_option
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME",
    help="Fill this column, in all rows. May be given several times. [the columns that were added later]",
)
@click.option(
    "--registry", default=None, metavar="URL", help="The schema registry, if it has moved or has a password."
)
@spark_options
@json_option
def command(
    topics: tuple[str, ...],
    to: str,
    table_format: str,
    catalog: str | None,
    namespace: str | None,
    store: tuple[str, ...],
    bootstrap: str,
    columns: tuple[str, ...],
    registry: str | None,
    master: str | None,
    remote: str | None,
    as_json: bool,
) -> None:
    """Fill columns that were added later, from the topic, in the rows that were there before.

    Workers of Spark read the records of these rows again and rewrite the files; then one commit puts the new files in
    the place of theirs. Rows whose records the topic does not hold any more are counted, and keep null. A backfill
    that was stopped or killed is continued by the next one, and a sync may go on meanwhile.
    """
    check_installed()
    from flintmq.lake.backfill.backfill import backfill
    from flintmq.lake.syncing.options import make_options, parse_store_settings

    options = make_options(
        topics,
        to=to,
        format=table_format,
        bootstrap_servers=bootstrap,
        security=client_security(),
        catalog=catalog,
        namespace=namespace,
        store=parse_store_settings(store),
    )
    spark = open_session(master, remote)
    with Progress("writing") as progress:
        reports = backfill(
            spark, options, columns=columns, registry=registry, on_progress=progress.tell_pieces
        )
    if as_json:
        print_json([_as_json(one) for one in reports])
        return
    for one in reports:
        _show(one)


def _show(one: BackfillReport) -> None:
    if not one.columns:
        click.echo(f"{one.topic} -> {one.table}: nothing to fill")
        return
    click.echo(
        f"{one.topic} -> {one.table}: {', '.join(one.columns)} filled in {many(one.filled, 'row')}, "
        f"{many(one.files, 'file')} rewritten"
    )
    if one.gone:
        click.echo(f"{many(one.gone, 'row')} whose records the topic does not hold any more")
    if one.unfit:
        click.echo(f"{many(one.unfit, 'row')} whose records do not fit the new columns")


def _as_json(one: BackfillReport) -> dict[str, object]:
    return {
        "topic": one.topic,
        "table": one.table,
        "columns": list(one.columns),
        "filled": one.filled,
        "gone": one.gone,
        "unfit": one.unfit,
        "files": one.files,
        "commits": one.commits,
    }
