"""`flintmq bench`: a quick measure of any broker that speaks Kafka's protocol (Z6)."""

from __future__ import annotations

import secrets
import time
from typing import Any

import click

from flintmq.cli.bench.loads import LoadGenerator, LoadResult, make_batch, percentile
from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.exit_codes import UsageFailure
from flintmq.cli.common.output import note, print_json, print_table, size, warn
from flintmq.client.admin.topics import create_topic, delete_topic
from flintmq.errors import FlintError
from flintmq.records.compression import Codec

_CODECS = {codec.label: codec for codec in Codec}
_DATA_BYTES_MAX = 64 << 30
_ACKS = {"1": 1, "all": -1}


@click.command(
    "bench",
    cls=Command,
    examples=(
        "flintmq bench",
        "flintmq bench --records 5000000 --size 1000 --batch-bytes 131072 --partitions 6",
        "flintmq bench -b kafka-1:9092 --acks all --codec zstd --json",
    ),
)
@bootstrap_option
@click.option(
    "--records",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(min=1),
    help="Records to write and to read back.",
)
@click.option(
    "--size",
    "record_bytes",
    default=100,
    show_default=True,
    type=click.IntRange(min=0, max=1 << 20),
    help="Bytes of a record's value.",
)
@click.option(
    "--batch-bytes",
    default=16 * 1024,
    show_default=True,
    type=click.IntRange(min=1, max=1 << 20),
    help="Bytes of a batch, before compression.",
)
@click.option(
    "--partitions",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Partitions of the topic.",
)
@click.option(
    "--in-flight",
    default=5,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Batches sent before the first is acknowledged.",
)
@click.option(
    "--acks", default="1", show_default=True, type=click.Choice(list(_ACKS)), help="Who must have it."
)
@click.option(
    "--codec", default="none", show_default=True, type=click.Choice(list(_CODECS)), help="Compression."
)
@click.option(
    "--singles",
    default=1000,
    show_default=True,
    type=click.IntRange(min=0, max=1_000_000),
    help="Single records to time, one after the other; 0 leaves that out.",
)
@click.option(
    "--duration",
    "duration_s",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0.1, max=3600),
    help="Seconds that each of the three may take at most.",
)
@json_option
def command(
    bootstrap: str,
    records: int,
    record_bytes: int,
    batch_bytes: int,
    partitions: int,
    in_flight: int,
    acks: str,
    codec: str,
    singles: int,
    duration_s: float,
    as_json: bool,
) -> None:
    """Measure a broker: writing, reading, latency.

    Makes a topic of its own, writes records in ready-made batches, reads them back, times single records one
    by one, and deletes the topic. This process uses one core: a fast broker with several may do more than is
    shown. For comparisons that can be quoted, see the project's bench/ folder.
    """
    if records * max(record_bytes, 1) > _DATA_BYTES_MAX:
        raise UsageFailure(f"that would be more than {size(_DATA_BYTES_MAX)}; choose fewer --records")
    now_ms = int(time.time() * 1000)
    batch = make_batch(
        record_bytes=record_bytes, batch_bytes=batch_bytes, codec=_CODECS[codec], now_ms=now_ms
    )
    single = make_batch(record_bytes=record_bytes, batch_bytes=1, codec=_CODECS[codec], now_ms=now_ms)
    name = f"flintmq-bench-{secrets.token_hex(4)}"
    with open_client(bootstrap) as client:
        create_topic(client, name, partitions=partitions)
        try:
            loads = LoadGenerator(client, name, acks=_ACKS[acks])
            written = loads.write(batch, records_max=records, in_flight_max=in_flight, duration_s=duration_s)
            read = loads.read(records=written.records, duration_s=duration_s)
            timed = loads.time_single(single, count=singles, duration_s=duration_s) if singles else None
        finally:
            _delete(bootstrap, name)
    found: dict[str, dict[str, Any]] = {
        "topic": {"partitions": partitions},
        "batch": {"records": batch.record_count, "bytes": len(batch.data), "codec": codec, "acks": acks},
        "produce": _result_fields(written),
        "consume": _result_fields(read),
    }
    if timed is not None:
        found["single"] = _result_fields(timed)
    if as_json:
        print_json(found)
        return
    print_table(
        ("load", "records", "records/s", "MB/s", "p50 ms", "p99 ms"),
        [_row(load, found[load]) for load in ("produce", "consume", "single") if load in found],
        numbers=("records", "records/s", "MB/s", "p50 ms", "p99 ms"),
    )
    note(
        f"{batch.record_count} records of {record_bytes} B in a batch of {len(batch.data)} B, {in_flight} in flight, "
        f"acks={acks}. Times are of one request: a batch, a fetch, a single record."
    )
    if read.records < written.records or written.records < records:
        warn(f"the time ran out (--duration {duration_s:g}): fewer records than asked for")


def _delete(bootstrap: str, name: str) -> None:
    """By a connection of its own: the other may have requests on it that were never answered."""
    try:
        with open_client(bootstrap) as client:
            delete_topic(client, name)
    except FlintError as error:
        warn(f"topic {name} could not be deleted: {error}")


def _result_fields(measured: LoadResult) -> dict[str, Any]:
    p50, p99 = percentile(measured.latencies_ms, 0.5), percentile(measured.latencies_ms, 0.99)
    return {
        "records": measured.records,
        "seconds": round(measured.seconds, 4),
        "records_per_s": round(measured.records_per_s, 1),
        "mb_per_s": round(measured.mb_per_s, 3),
        "p50_ms": None if p50 is None else round(p50, 4),
        "p99_ms": None if p99 is None else round(p99, 4),
    }


def _row(load: str, fields: dict[str, Any]) -> tuple[str, ...]:
    times = ["-" if fields[name] is None else f"{fields[name]:.3f}" for name in ("p50_ms", "p99_ms")]
    return (
        load,
        f"{fields['records']:,}",
        f"{fields['records_per_s']:,.0f}",
        f"{fields['mb_per_s']:,.1f}",
        *times,
    )
