"""`flintmq lake status`: how far tables are behind, and what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, client_security, json_option
from flintmq.cli.common.output import many, print_json, print_table, size
from flintmq.cli.lake.options import check_installed, place_options

if TYPE_CHECKING:
    from flintmq.lake.status import TableContents, TableStatus


@click.command(
    "status",
    cls=Command,
    examples=(
        "flintmq lake status orders --to /srv/lake",
        "flintmq lake status orders payments --to s3://lake --format delta --json",
    ),
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@place_options
@bootstrap_option
@json_option
def command(
    topics: tuple[str, ...],
    to: str,
    table_format: str,
    catalog: str | None,
    namespace: str | None,
    store: tuple[str, ...],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Show how far tables are behind their topics, by partition, and what they hold.

    Needs no Spark: only the tables' own records of themselves are read.
    """
    check_installed()
    from flintmq.lake.status import status
    from flintmq.lake.syncing.options import make_options, parse_store_settings

    found = status(
        make_options(
            topics,
            to=to,
            format=table_format,
            bootstrap_servers=bootstrap,
            security=client_security(),
            catalog=catalog,
            namespace=namespace,
            store=parse_store_settings(store),
        )
    )
    if as_json:
        print_json([_as_json(one) for one in found])
        return
    for at, one in enumerate(found):
        if at:
            click.echo()
        _show(one)


def _show(one: TableStatus) -> None:
    click.secho(f"{one.topic} -> {one.location}", bold=True)
    click.echo(f"{_words(one.contents)}, {one.decoding}, lag {one.lag:,}")
    if one.extra_fields:
        from flintmq.arrow.formats.extra_fields import described

        click.echo(f"fields without a column: {described(one.extra_fields)}")
    if one.backfill:
        click.echo(
            f"columns that older rows do not have: {', '.join(one.backfill)}; see flintmq lake backfill"
        )
    for risk in one.retention_risks:
        click.secho(risk, fg="yellow")
    if one.quarantined is not None and one.quarantine is not None and any(_counts(one).values()):
        counts = ", ".join(f"{count:,} {name}" for name, count in _counts(one).items())
        click.echo(f"quarantine: {counts}; {_words(one.quarantined)}")
    print_table(
        ("partition", "in the table", "in the topic", "lag"),
        [
            (
                str(part.partition),
                "-" if part.next_offset is None else str(part.next_offset),
                str(part.end),
                str(part.lag),
            )
            for part in one.partitions
        ],
        numbers=("partition", "in the table", "in the topic", "lag"),
    )


def _counts(one: TableStatus) -> dict[str, int]:
    found = one.quarantine
    return {
        "open": 0 if found is None else found.open,
        "replayed": 0 if found is None else found.replayed,
        "discarded": 0 if found is None else found.discarded,
    }


def _words(contents: TableContents) -> str:
    return f"{many(contents.rows, 'row')} in {many(contents.files, 'file')}, {size(contents.size)}"


def _as_json(one: TableStatus) -> dict[str, object]:
    return {
        "topic": one.topic,
        "table": one.location,
        "decode": one.decoding,
        "lag": one.lag,
        "rows": one.contents.rows,
        "files": one.contents.files,
        "bytes": one.contents.size,
        "extra_fields": dict(one.extra_fields),
        "backfill": sorted(one.backfill),
        "retention_risks": list(one.retention_risks),
        "quarantined": _counts(one)["open"],
        "replayed": _counts(one)["replayed"],
        "discarded": _counts(one)["discarded"],
        "partitions": [
            {"partition": part.partition, "offset": part.next_offset, "end": part.end, "lag": part.lag}
            for part in one.partitions
        ],
    }
