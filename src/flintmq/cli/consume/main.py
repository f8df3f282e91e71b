"""`flintmq consume`: records of a topic on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.output import warn
from flintmq.cli.common.record_printer import FIELDS, Printer, as_json, columns, compile_template
from flintmq.cli.consume.starting_point import StartingPoint, StartMode, parse_start, position
from flintmq.client.admin.topics import EARLIEST, LATEST, offsets
from flintmq.client.cluster import ClusterClient
from flintmq.client.consumer import Consumer
from flintmq.client.metadata import TopicMetadata
from flintmq.errors import ErrorCode, RequestError
from flintmq.records.record import Record


@click.command(
    "consume",
    cls=Command,
    examples=(
        "flintmq consume greetings",
        "flintmq consume orders --from -10 --until-end --keys",
        "flintmq consume orders --from 2026-01-31T12:00 --max 100 --json | jq .value",
        "flintmq consume orders --format '{time} {partition}:{offset} {key} = {value}\\n'",
        "flintmq consume orders --group billing",
        "flintmq consume orders.dead --until-end --headers --isolation-level read_committed",
    ),
)
@click.argument("topic")
@click.option(
    "--group",
    metavar="NAME",
    help="Read as a member of this group: share the partitions with its other members, go on where it left off, and "
    "commit what was printed. --from is then for partitions that it has no offset for.",
)
@click.option(
    "--from",
    "start_text",
    default="beginning",
    metavar="WHERE",
    show_default=True,
    help="beginning, end, an offset (120), the last so many of each partition (-10), an age (-1h) or a time "
    "(2026-01-31T12:00, or with a zone).",
)
@click.option(
    "--partition", "partitions", multiple=True, type=click.IntRange(min=0), help="Read only this one. [all]"
)
@click.option(
    "--isolation-level",
    type=click.Choice(("read_uncommitted", "read_committed")),
    default="read_uncommitted",
    show_default=True,
    help="read_committed: without records of transactions that were aborted, and not beyond one that is open.",
)
@click.option("--max", "limit", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option("--until-end", is_flag=True, help="Stop at the end as it is now. [go on and wait for more]")
@click.option("--keys", is_flag=True, help="Print the key before the value.")
@click.option("--headers", is_flag=True, help="Print the headers before the value.")
@click.option("--timestamps", is_flag=True, help="Print the time before the value.")
@click.option("--offsets", "show_offsets", is_flag=True, help="Print partition and offset before the value.")
@click.option(
    "--format", "template", metavar="TEMPLATE", help=f"Fields in braces: {', '.join(FIELDS)}; \\n and \\t."
)
@bootstrap_option
@json_option
def command(
    topic: str,
    group: str | None,
    start_text: str,
    partitions: tuple[int, ...],
    isolation_level: str,
    limit: int | None,
    until_end: bool,
    keys: bool,
    headers: bool,
    timestamps: bool,
    show_offsets: bool,
    template: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Read records of a topic.

    Prints the value of each record on a line of its own, and waits for more until Ctrl-C. What is asked for
    besides comes before the value, separated by tabs. In text, no key or no value at all is `null`.
    """
    wanted = [
        name
        for name, asked in (
            ("time", timestamps),
            ("partition", show_offsets),
            ("offset", show_offsets),
            ("headers", headers),
            ("key", keys),
        )
        if asked
    ]
    printer = _printer(wanted, template, as_json)
    if group is not None and partitions:
        raise click.UsageError(
            "--partition and --group exclude each other: the group decides who reads what."
        )
    committed = isolation_level == "read_committed"
    with open_client(bootstrap) as client:
        start = parse_start(start_text, client.clock.now_ms())
        view = client.topic(topic)

        def gap(partition: int, missing: int, found: int) -> None:
            warn(f"{topic}-{partition}: the records from offset {missing} on are gone; going on at {found}")

        try:
            if group is None:
                firsts, ends = _bounds(client, topic, _chosen(view, partitions), read_committed=committed)
                positions = _positions(client, topic, start, firsts, ends)
                consumer = Consumer(client, view, positions, on_gap=gap, read_committed=committed)
                for records in _records(consumer, ends if until_end else None, limit):
                    _print(records, topic, printer)
            else:
                from flintmq.cli.consume.group_member import read_as_member

                bounds = partial(_bounds, client, topic, read_committed=committed)

                def begin(partitions: Sequence[int]) -> Mapping[int, int]:
                    return _positions(client, topic, start, *bounds(partitions))

                def ends_of(partitions: Sequence[int]) -> Mapping[int, int]:
                    return bounds(partitions)[1]

                read_as_member(
                    client,
                    view,
                    group,
                    begin=begin,
                    ends=ends_of if until_end else None,
                    limit=limit,
                    on_gap=gap,
                    read_committed=committed,
                    show=lambda records: _print(records, topic, printer),
                )
        except KeyboardInterrupt:
            pass
        except BrokenPipeError:
            # Whoever read our output has seen enough. Python must not try to flush what is left.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _printer(wanted: Sequence[str], template: str | None, json_asked: bool) -> Printer:
    if sum((bool(wanted), template is not None, json_asked)) > 1:
        raise click.UsageError(
            "choose one way to print: --json, --format, or some of --keys, --headers, --timestamps, --offsets."
        )
    if json_asked:
        return as_json
    return columns([*wanted, "value"]) if template is None else compile_template(template)


def _chosen(topic: TopicMetadata, partitions: Sequence[int]) -> list[int]:
    for partition in partitions:
        if partition not in topic.partitions:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic.name} has no partition {partition}, only 0 to {len(topic.partitions) - 1}",
            )
    return sorted(set(partitions) or topic.partitions)


def _bounds(
    client: ClusterClient, topic: str, chosen: Sequence[int], *, read_committed: bool
) -> tuple[dict[int, int], dict[int, int]]:
    topic_partitions = [(topic, partition) for partition in chosen]
    firsts = offsets(client, topic_partitions, EARLIEST)
    ends = offsets(client, topic_partitions, LATEST, read_committed=read_committed)
    return {topic_partition[1]: firsts[topic_partition] for topic_partition in topic_partitions}, {
        topic_partition[1]: ends[topic_partition] for topic_partition in topic_partitions
    }


def _positions(
    client: ClusterClient, topic: str, start: StartingPoint, firsts: dict[int, int], ends: dict[int, int]
) -> dict[int, int]:
    at_time: dict[int, int | None] = dict.fromkeys(firsts)
    if start.kind is StartMode.TIME:
        found = offsets(client, [(topic, partition) for partition in firsts], start.number)
        at_time = {partition: offset if offset >= 0 else None for (_, partition), offset in found.items()}
    positions = {}
    for partition, first in firsts.items():
        try:
            positions[partition] = position(start, first, ends[partition], at_time[partition])
        except RequestError as error:
            raise RequestError(error.code, f"{topic}-{partition}: {error}") from error
    return positions


def _records(
    consumer: Consumer, ends: dict[int, int] | None, limit: int | None
) -> Iterator[list[tuple[int, Record]]]:
    """What each poll brings, up to `ends` where given, and at most `limit` in all."""
    left = limit
    while True:
        for partition in list(consumer.positions):
            if ends is not None and consumer.positions[partition] >= ends[partition]:
                consumer.drop(partition)
        if not consumer.positions:
            return
        records = [
            (partition, record)
            for partition, record in consumer.poll()
            if ends is None or record.offset < ends[partition]
        ]
        yield records if left is None else records[:left]
        if left is not None:
            left -= len(records)
            if left <= 0:
                return


def _print(records: Sequence[tuple[int, Record]], topic: str, printer: Printer) -> None:
    out = sys.stdout.buffer
    for partition, record in records:
        out.write(printer(topic, partition, record))
    out.flush()
