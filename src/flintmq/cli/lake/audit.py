"""`flintmq lake audit`: do topics and tables agree, row for row?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, client_security, json_option
from flintmq.cli.common.exit_codes import REMOTE_CODES, Exit
from flintmq.cli.common.output import many, print_json
from flintmq.cli.common.progress import Progress
from flintmq.cli.lake.options import check_installed, open_session, place_options, spark_options

if TYPE_CHECKING:
    from flintmq.lake.audit.report import TableAudit


@click.command(
    "audit",
    cls=Command,
    examples=(
        "flintmq lake audit orders --to /srv/lake",
        "flintmq lake audit orders payments --to s3://lake --format delta --json",
    ),
    exit_codes={**REMOTE_CODES, Exit.FAILED: "topic and table do not agree, or could not be compared"},
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@place_options
@bootstrap_option
@click.option(
    "--registry", default=None, metavar="URL", help="The schema registry, if it has moved or has a password."
)
@spark_options
@json_option
@click.pass_context
def command(
    context: click.Context,
    topics: tuple[str, ...],
    to: str,
    table_format: str,
    catalog: str | None,
    namespace: str | None,
    store: tuple[str, ...],
    bootstrap: str,
    registry: str | None,
    master: str | None,
    remote: str | None,
    as_json: bool,
) -> None:
    """Compare every row of tables with the records of their topics, in one pass.

    A byte that is not the same, a row that is missing, doubled or foreign, a file that is gone or damaged is named
    with its offsets. What retention has taken from a topic is checked within the table only.
    """
    check_installed()
    from flintmq.lake.audit.audit import audit
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
    with Progress("comparing") as progress:
        found = audit(spark, options, registry=registry, on_progress=progress.tell_pieces)
    if as_json:
        print_json([_as_json(one) for one in found])
    else:
        for one in found:
            _show(one)
    if not all(one.is_good for one in found):
        context.exit(Exit.FAILED)


def _show(one: TableAudit) -> None:
    agrees = "agrees" if one.is_good else many(one.problem_count, "problem")
    click.secho(f"{one.topic} -> {one.table}: {agrees}", bold=True, fg=None if one.is_good else "red")
    click.echo(f"{many(one.compared, 'row')} compared, in {many(one.files, 'file')}")
    for count, words in (
        (one.only_in_lake, "that retention has taken from the topic, checked within the table"),
        (one.compacted, "that compaction has taken from the topic"),
        (one.undecodable, "that cannot be decoded, of which no quarantine table tells"),
    ):
        if count:
            click.echo(f"{many(count, 'row')} {words}")
    if one.not_yet:
        click.echo(f"{many(one.not_yet, 'offset')} not synced yet")
    if one.open_columns:
        click.echo(f"columns that older rows need not have yet: {', '.join(one.open_columns)}")
    if one.extra:
        from flintmq.arrow.formats.extra_fields import described

        click.echo(f"fields without a column: {described(one.extra)}")
    for problem in one.problems:
        click.echo(str(problem))
    if one.problem_count > len(one.problems):
        click.echo(f"and {one.problem_count - len(one.problems)} more")


def _as_json(one: TableAudit) -> dict[str, object]:
    return {
        "topic": one.topic,
        "table": one.table,
        "agrees": one.is_good,
        "compared": one.compared,
        "files": one.files,
        "only_in_lake": one.only_in_lake,
        "compacted": one.compacted,
        "undecodable": one.undecodable,
        "not_yet": one.not_yet,
        "extra_fields": dict(one.extra),
        "backfill": list(one.open_columns),
        "problem_count": one.problem_count,
        "problems": [
            {
                "kind": problem.kind,
                "partition": problem.partition,
                "start": problem.start,
                "end": problem.end,
                "column": problem.column,
                "files": list(problem.files),
                "detail": problem.detail,
            }
            for problem in one.problems
        ],
    }
