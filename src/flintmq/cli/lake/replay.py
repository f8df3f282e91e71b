"""`flintmq lake replay`: a table back into a topic, or quarantined records into their table."""

from __future__ import annotations

from datetime import datetime

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, client_security, json_option
from flintmq.cli.common.exit_codes import REMOTE_CODES
from flintmq.cli.common.output import many, print_json
from flintmq.cli.lake.options import check_installed, open_session, place_options, spark_options
from flintmq.errors import ConfigurationError
from flintmq.records.compression import Codec

_CODECS = {codec.label: codec for codec in Codec}


@click.command(
    "replay",
    cls=Command,
    examples=(
        "flintmq lake replay orders --to /srv/lake --to-topic orders-again",
        "flintmq lake replay orders --to /srv/lake --to-topic orders-may --since 2026-05-01 --until 2026-06-01",
        "flintmq lake replay orders --to s3://lake --format delta --to-topic test --start-offset 0 --end-offset 1000",
        "flintmq lake replay orders --to /srv/lake --quarantined",
    ),
    exit_codes=REMOTE_CODES,
)
@click.argument("topic", metavar="TABLE")
@place_options
@bootstrap_option
@click.option("--to-topic", default=None, metavar="TOPIC", help="The topic to write to.")
@click.option(
    "--quarantined",
    is_flag=True,
    help="Add quarantined records that can be decoded now to the table, instead of writing to a topic.",
)
@click.option(
    "--start-offset", type=click.IntRange(0), default=None, help="The first offset, in every partition."
)
@click.option(
    "--end-offset",
    type=click.IntRange(0),
    default=None,
    help="The offset after the last one, in every partition.",
)
@click.option("--since", default=None, metavar="TIME", help="Only records of this time or later.")
@click.option("--until", default=None, metavar="TIME", help="Only records from before this time.")
@click.option(
    "--name",
    default=None,
    help="The name under which progress is kept; a new name starts over. [from the table, the topic and the range]",
)
@click.option("--compression", type=click.Choice(tuple(_CODECS)), default="none", show_default=True)
@click.option(
    "--registry",
    default=None,
    metavar="URL",
    help="The schema registry, if it has moved or has a password.",
)
@spark_options
@json_option
def command(
    topic: str,
    to: str,
    table_format: str,
    catalog: str | None,
    namespace: str | None,
    store: tuple[str, ...],
    bootstrap: str,
    to_topic: str | None,
    quarantined: bool,
    start_offset: int | None,
    end_offset: int | None,
    since: str | None,
    until: str | None,
    name: str | None,
    compression: str,
    registry: str | None,
    master: str | None,
    remote: str | None,
    as_json: bool,
) -> None:
    """Write the rows of a table to a topic as they were, or quarantined records to their table.

    To a topic, rows come with their keys, headers, timestamps and partitions, once each for readers that read
    committed. A replay that was stopped or killed is continued by the same command; what was synced since then comes
    too.

    With --quarantined nothing is written to a topic: records of the quarantine table that the table's schema accepts
    by now become rows of the table, once each, at their places by offset. The others stay where they are.
    """
    if quarantined:
        about_topics = {
            "--to-topic": to_topic,
            "--start-offset": start_offset,
            "--end-offset": end_offset,
            "--since": since,
            "--until": until,
            "--name": name,
        }
        if given := [option for option, value in about_topics.items() if value is not None]:
            raise ConfigurationError(
                f"{given[0]} is about a replay to a topic; leave it out, or --quarantined"
            )
        if compression != "none":
            raise ConfigurationError(
                "--compression is about a replay to a topic; leave it out, or --quarantined"
            )
        _replay_quarantined(
            topic, to, table_format, catalog, namespace, store, registry, master, remote, as_json=as_json
        )
        return
    if to_topic is None:
        raise ConfigurationError(
            "say where the rows go with --to-topic TOPIC, or --quarantined for records from quarantine"
        )
    if registry is not None:
        raise ConfigurationError("--registry is about decoding; it goes with --quarantined")
    check_installed()
    from flintmq.lake.replay.replay import ReplaySelection, replay
    from flintmq.lake.syncing.options import make_options, parse_store_settings

    whole = ReplaySelection()
    selection = ReplaySelection(
        start_offset=whole.start_offset if start_offset is None else start_offset,
        end_offset=whole.end_offset if end_offset is None else end_offset,
        since_ms=None if since is None else _moment_ms("--since", since),
        until_ms=None if until is None else _moment_ms("--until", until),
    )
    options = make_options(
        [topic],
        to=to,
        format=table_format,
        bootstrap_servers=bootstrap,
        security=client_security(),
        catalog=catalog,
        namespace=namespace,
        store=parse_store_settings(store),
    )
    done = replay(
        open_session(master, remote),
        options,
        to_topic=to_topic,
        selection=selection,
        name=name,
        codec=_CODECS[compression],
    )
    if as_json:
        print_json({"table": done.table, "topic": done.topic, "name": done.name, "rows": done.rows})
    elif done.rows:
        click.echo(f"{done.table} -> {done.topic}: {many(done.rows, 'row')}, remembered as {done.name}")
    else:
        click.echo(
            f"{done.table} -> {done.topic}: nothing left to replay; to do it again give it another --name"
        )


def _replay_quarantined(
    topic: str,
    to: str,
    table_format: str,
    catalog: str | None,
    namespace: str | None,
    store: tuple[str, ...],
    registry: str | None,
    master: str | None,
    remote: str | None,
    *,
    as_json: bool,
) -> None:
    check_installed()
    from flintmq.lake.quarantine.open import open_quarantined
    from flintmq.lake.quarantine.replay import replay_quarantined
    from flintmq.lake.syncing.options import parse_store_settings

    source = open_quarantined(
        to,
        topic,
        table_format,
        settings=parse_store_settings(store),
        catalog=catalog,
        namespace=namespace,
    )
    done = replay_quarantined(open_session(master, remote), source, registry=registry)
    if as_json:
        print_json({"table": source.table.location, "replayed": done.replayed, "left": done.left})
        return
    if done.replayed:
        click.echo(
            f"{source.table.location}: {many(done.replayed, 'quarantined record')} added to the table, "
            f"{many(done.files, 'file')} written"
        )
    else:
        click.echo(f"{source.table.location}: no quarantined record can be decoded")
    if done.left:
        click.echo(
            f"{many(done.left, 'record')} still cannot be decoded; list with: "
            f"flintmq lake quarantine list {topic} --to {to} --format {table_format}"
        )


def _moment_ms(option: str, text: str) -> int:
    try:
        return round(datetime.fromisoformat(text.strip()).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ConfigurationError(
            f"{option} {text}: expected a time such as 2026-01-31T12:00 or 2026-01-31T12:00:00+01:00"
        ) from None
