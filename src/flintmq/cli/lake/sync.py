"""`flintmq lake sync`: tables that have what topics have."""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, client_security, json_option
from flintmq.cli.common.exit_codes import REMOTE_CODES, Exit
from flintmq.cli.common.option_values import parse_duration_ms, parse_size_bytes
from flintmq.cli.common.output import many, note, size
from flintmq.cli.common.progress import Progress
from flintmq.cli.lake.options import (
    check_installed,
    file_size_option,
    open_session,
    place_options,
    quarantine_option,
    schema_option,
    spark_options,
    value_options,
)
from flintmq.effects.signals import SignalHandler
from flintmq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.lake.syncing.metrics import SyncMetrics, TableCommit

EVOLVE = ("fail", "warn", "add")
_CONTINUOUS_S = 1.0


@click.command(
    "sync",
    cls=Command,
    examples=(
        "flintmq lake sync orders --to /srv/lake",
        "flintmq lake sync orders payments --to s3://lake --format delta --interval 30s",
        "flintmq lake sync clicks --to /srv/lake --format delta --partition-by timestamp:day --continuous",
        'flintmq lake sync users --to /srv/lake --decode json --schema "id long, name string"',
        "flintmq lake sync users --to /srv/lake --decode json --evolve add",
        "flintmq lake sync events --to /srv/lake --decode avro --registry http://registry:8081",
    ),
    exit_codes={**REMOTE_CODES, Exit.OK: "done, or stopped by a signal"},
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@place_options
@bootstrap_option
@click.option("--once", is_flag=True, help="Sync what the topics hold now, then exit. This is the default.")
@click.option(
    "--interval",
    default=None,
    metavar="TIME",
    help="Repeat the sync at this interval, such as 30s or '5 minutes'.",
)
@click.option(
    "--continuous", is_flag=True, help="Sync as soon as there are new records, at most once a second."
)
@click.option(
    "--decode",
    default=None,
    help="How values become columns: raw (not at all), json, avro, protobuf. [as in the table; raw for a new one]",
)
@schema_option("JSON: inferred from records")
@value_options
@click.option(
    "--evolve",
    type=click.Choice(EVOLVE),
    default=None,
    help="How to treat fields that the table has no column for: fail the sync, count and name them, or "
    "add columns. [warn; with --registry: add]",
)
@click.option(
    "--rest",
    default=None,
    metavar="COLUMN",
    help="JSON: keep fields that have no column in this column, as a JSON object.",
)
@click.option(
    "--partition-by",
    multiple=True,
    metavar="COLUMN[:PART]",
    help="Partition a new table by a column, or by year, month, day or hour of a time, such as timestamp:day.",
)
@quarantine_option
@click.option(
    "--allow-gaps",
    is_flag=True,
    help="Continue with a warning if retention deleted records before they were synced.",
)
@click.option("--group", default=None, help="The consumer group that shows the lag. [lake-TOPIC]")
@file_size_option
@click.option(
    "--metrics-file",
    default=None,
    metavar="FILE",
    help="Write metrics for Prometheus to this file after each sync.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=None,
    metavar="PORT",
    help="Serve them at http://127.0.0.1:PORT/metrics while it runs; 0 takes a free port and prints it.",
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
    schema: str | None,
    once: bool,
    interval: str | None,
    continuous: bool,
    file_size: str,
    metrics_file: str | None,
    metrics_port: int | None,
    master: str | None,
    remote: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Copy topics into tables, each record exactly once.

    The topics are read (from the broker's own files, where they are accessible), checked and
    written as Parquet; then files and offsets are committed together. The next sync continues after one that was
    stopped or killed.
    """
    interval_s = _interval_s(once=once, interval=interval, continuous=continuous)
    check_installed()
    from flintmq.lake.syncing.options import make_options, parse_store_settings

    asked = make_options(
        topics,
        to=to,
        format=table_format,
        bootstrap_servers=bootstrap,
        security=client_security(),
        catalog=catalog,
        namespace=namespace,
        store=parse_store_settings(store),
        schema=schema,
        piece_bytes=parse_size_bytes("--file-size", file_size, example="64MiB"),
        **options,
    )
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    spark = open_session(master, remote, is_long=interval_s is not None)
    from flintmq.lake.syncing.metrics import SyncMetrics, write_metrics_file
    from flintmq.lake.syncing.range_runner import SyncStopped
    from flintmq.lake.syncing.sync import Sync

    metrics = SyncMetrics()

    def write_metrics() -> None:
        if metrics_file is not None:
            write_metrics_file(metrics_file, metrics.text())

    hinted: set[str] = set()

    def shown(commit: TableCommit) -> None:
        progress.clear()
        _show(commit, as_json=as_json)
        if commit.quarantined and asked.quarantine_topic is None and commit.topic not in hinted:
            hinted.add(commit.topic)
            note(
                f"quarantined records: flintmq lake quarantine list {commit.topic} --to {to} --format {table_format}"
            )

    with (
        _serving_metrics(metrics_port, metrics),
        Progress("writing") as progress,
        Sync(spark, asked, metrics=metrics, on_progress=progress.tell_pieces, on_commit=shown) as sync,
        SignalHandler(lambda _: sync.stop()),
    ):
        try:
            if interval_s is not None:
                sync.follow(interval_s=interval_s, on_sync=write_metrics)
            elif not sync.run().commits and not as_json:
                note("nothing new")
        except SyncStopped as stopped:
            note(str(stopped))
        finally:
            write_metrics()


def _show(commit: TableCommit, *, as_json: bool) -> None:
    if as_json:
        # A line each: whoever reads them need not wait for the end, which may not come.
        fields = {
            "topic": commit.topic,
            "table": commit.table,
            "rows": commit.rows,
            "files": commit.files,
            "bytes": commit.bytes,
            "quarantined": commit.quarantined,
            "seconds": round(commit.seconds, 3),
            "lag": sum(commit.lag.values()),
            "columns_added": list(commit.columns_added),
            "extra_fields": dict(commit.extra),
        }
        click.echo(json.dumps(fields, ensure_ascii=False))
        return
    poison = f", {many(commit.quarantined, 'record')} quarantined" if commit.quarantined else ""
    click.echo(
        f"{commit.topic} -> {commit.table}: {many(commit.rows, 'row')} in {many(commit.files, 'file')}, "
        f"{size(commit.bytes)}{poison}, {commit.seconds:.1f} s, lag {sum(commit.lag.values())}"
    )
    if commit.columns_added:
        click.echo(f"columns added: {', '.join(commit.columns_added)}")
    if commit.extra:
        from flintmq.arrow.formats.extra_fields import described

        click.echo(f"fields without a column: {described(commit.extra)}; see --schema, --evolve and --rest")


@contextmanager
def _serving_metrics(port: int | None, metrics: SyncMetrics) -> Iterator[None]:
    if port is None:
        yield
        return
    from flintmq.http.metrics_server import MetricsServer

    with MetricsServer(metrics.text, port=port) as server:
        if port == 0:
            note(f"metrics at http://127.0.0.1:{server.port}/metrics")
        yield


def _interval_s(*, once: bool, interval: str | None, continuous: bool) -> float | None:
    if sum((once, interval is not None, continuous)) > 1:
        raise ConfigurationError("--once, --interval and --continuous exclude each other; give one of them")
    if interval is not None:
        return parse_duration_ms("--interval", interval) / 1000
    return _CONTINUOUS_S if continuous else None
