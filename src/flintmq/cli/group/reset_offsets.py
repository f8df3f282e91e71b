"""`flintmq group reset-offsets`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.option_values import parse_duration_ms
from flintmq.cli.common.output import many, note, print_json, print_table
from flintmq.cli.group.members import find_group, non_empty_group
from flintmq.cli.group.reset_target import (
    PartitionOffsets,
    ResetScenario,
    ResetTarget,
    parse_moment,
    parse_topic,
    reset_offset,
)
from flintmq.client.admin.groups import committed_offsets, set_offsets
from flintmq.client.admin.topics import EARLIEST, LATEST, offsets
from flintmq.client.cluster import ClusterClient
from flintmq.errors import ErrorCode, RequestError
from flintmq.records.topic_partition import TopicPartition


class OffsetChange(NamedTuple):
    topic: str
    partition: int
    before: int | None
    after: int


@click.command(
    "reset-offsets",
    cls=Command,
    examples=(
        "flintmq group reset-offsets billing --topic orders --to-earliest --dry-run",
        "flintmq group reset-offsets billing --topic orders:0,2 --shift-by -100",
        "flintmq group reset-offsets billing --topic orders --to-datetime 2026-01-31T12:00 --yes",
        "flintmq group reset-offsets billing --topic orders --topic refunds --by-duration 1h",
    ),
)
@click.argument("group")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="TOPIC[:PARTITIONS]",
    help="A topic, or some of its partitions (orders:0,2). May be given several times.",
)
@click.option("--to-earliest", is_flag=True, help="The first record that there still is.")
@click.option("--to-latest", is_flag=True, help="The end: only what is written from now on.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="This offset.")
@click.option("--shift-by", type=int, metavar="N", help="So many records on, or back if negative.")
@click.option("--to-datetime", metavar="TIME", help="The first record at or after a time (2026-01-31T12:00).")
@click.option("--by-duration", metavar="AGE", help="The first record of the last 90s, 15m, 1h, 7d.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@bootstrap_option
@json_option
def command(
    group: str,
    topics: tuple[str, ...],
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    dry_run: bool,
    yes: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Set where a group without members goes on reading.

    Shows the offsets before and after, then sets them; at a terminal you are asked in between, unless you say --yes.
    An offset outside of the log is moved to its nearest end. A group that is not there is made.
    """
    wanted = [parse_topic(text) for text in topics]
    with open_client(bootstrap) as client:
        choices = [
            to_earliest and ResetTarget(ResetScenario.EARLIEST),
            to_latest and ResetTarget(ResetScenario.LATEST),
            to_offset is not None and ResetTarget(ResetScenario.OFFSET, to_offset),
            shift_by is not None and ResetTarget(ResetScenario.SHIFT, shift_by),
            to_datetime is not None and ResetTarget(ResetScenario.TIME, parse_moment(to_datetime)),
            by_duration is not None
            and ResetTarget(
                ResetScenario.TIME,
                max(0, client.clock.now_ms() - parse_duration_ms("--by-duration", by_duration)),
            ),
        ]
        chosen = [target for target in choices if target]
        if len(chosen) != 1:
            raise click.UsageError(
                "say where to with one of --to-earliest, --to-latest, --to-offset, --shift-by, --to-datetime, "
                "--by-duration."
            )
        found = find_group(client, group)
        if found is not None and found.members:
            raise non_empty_group(group, found.members, "reset")
        moves = _plan(client, group, _places(client, wanted), chosen[0])
        if not as_json:
            _show(moves)
            if found is None:
                note(f"There is no group {group} yet.")
        if not dry_run:
            if not yes and sys.stdin.isatty():
                click.confirm(f"Set {many(len(moves), 'offset')} of {group}?", abort=True, err=True)
            _carry_out(client, group, moves)
    if as_json:
        print_json({"group": group, "dry_run": dry_run, "partitions": [move._asdict() for move in moves]})
    elif dry_run:
        note("Nothing was changed (--dry-run).")
    else:
        click.echo(f"Set {many(len(moves), 'offset')} of {group}.")


def _places(client: ClusterClient, wanted: Sequence[tuple[str, list[int] | None]]) -> list[TopicPartition]:
    topic_partitions: dict[TopicPartition, None] = {}
    for name, partitions in wanted:
        there = client.topic(name).partitions
        for partition in there if partitions is None else partitions:
            if partition not in there:
                raise RequestError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"{name} has no partition {partition}, only 0 to {len(there) - 1}",
                )
            topic_partitions[name, partition] = None
    return sorted(topic_partitions)


def _plan(
    client: ClusterClient, group: str, topic_partitions: Sequence[TopicPartition], target: ResetTarget
) -> list[OffsetChange]:
    committed = committed_offsets(client, group, topic_partitions)
    firsts, ends = offsets(client, topic_partitions, EARLIEST), offsets(client, topic_partitions, LATEST)
    at_time = (
        offsets(client, topic_partitions, target.number) if target.scenario is ResetScenario.TIME else {}
    )
    moves = []
    for topic_partition in topic_partitions:
        topic, partition = topic_partition
        before = committed[topic_partition].offset if topic_partition in committed else None
        at = at_time.get(topic_partition, -1)
        known = PartitionOffsets(
            before, firsts[topic_partition], ends[topic_partition], at if at >= 0 else None
        )
        moves.append(
            OffsetChange(topic, partition, before, reset_offset(target, known, f"{topic}-{partition}"))
        )
    return moves


def _show(moves: Sequence[OffsetChange]) -> None:
    print_table(
        ("topic", "partition", "before", "after", "change"),
        [
            (
                move.topic,
                str(move.partition),
                "-" if move.before is None else str(move.before),
                str(move.after),
                "new" if move.before is None else f"{move.after - move.before:+d}",
            )
            for move in moves
        ],
        numbers=("partition", "before", "after", "change"),
    )


def _carry_out(client: ClusterClient, group: str, moves: Sequence[OffsetChange]) -> None:
    try:
        set_offsets(client, group, {(move.topic, move.partition): move.after for move in moves})
    except RequestError as error:
        # A member came between the look and the change.
        if error.code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS):
            raise
        found = find_group(client, group)
        raise non_empty_group(group, found.members if found else (), "reset") from error
