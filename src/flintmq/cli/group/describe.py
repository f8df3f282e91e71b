"""`flintmq group describe`."""

from __future__ import annotations

from typing import Any

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.output import many, note, print_json, print_table
from flintmq.cli.group.members import member_fields
from flintmq.client.admin.groups import GroupMember, committed_offsets, describe_group
from flintmq.client.admin.topics import LATEST, offsets
from flintmq.client.cluster import ClusterClient
from flintmq.records.topic_partition import TopicPartition


@click.command(
    "describe",
    cls=Command,
    examples=(
        "flintmq group describe billing",
        "flintmq group describe billing --json | jq .lag",
    ),
)
@click.argument("group")
@bootstrap_option
@json_option
def command(group: str, bootstrap: str, as_json: bool) -> None:
    """Show how far a group has read, and who reads what.

    For each partition: the offset that the group goes on at, the end of the log, how many records lie between
    (its lag), and the member that reads it now.
    """
    with open_client(bootstrap) as client:
        found = _describe(client, group)
    if as_json:
        print_json(found)
        return
    click.secho(group, bold=True, nl=False)
    click.echo(f": {found['state']}, {many(len(found['members']), 'member')}", nl=False)
    click.echo(f", {found['assignor']} assignment" if found["assignor"] else "", nl=False)
    click.echo(f", {many(found['lag'], 'record')} behind\n")
    if not found["partitions"]:
        note("It has read nothing yet: no offsets, no partitions.")
        return
    print_table(
        ("topic", "partition", "committed", "end", "lag", "consumer", "host"),
        [
            (
                one["topic"],
                str(one["partition"]),
                _or_dash(one["committed"]),
                _or_dash(one["end"]),
                _or_dash(one["lag"]),
                _or_dash(one["instance"] or one["member"]),
                _or_dash(one["host"]),
            )
            for one in found["partitions"]
        ],
        numbers=("partition", "committed", "end", "lag"),
    )


def _describe(client: ClusterClient, name: str) -> dict[str, Any]:
    group = describe_group(client, name)
    committed = committed_offsets(client, name)
    readers: dict[TopicPartition, GroupMember] = {
        (topic, partition): member
        for member in group.members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    topic_partitions = sorted({*committed, *readers})
    topics = client.all_topics()
    # A topic may be gone, or a partition without a leader at the moment; the others are still asked.
    led = [
        (topic, partition)
        for topic, partition in topic_partitions
        if topic in topics and client.metadata.leader_of(topic, partition) >= 0
    ]
    ends = offsets(client, led, LATEST) if led else {}
    partitions = []
    for topic_partition in topic_partitions:
        at, end = committed.get(topic_partition), ends.get(topic_partition)
        reader = readers.get(topic_partition)
        partitions.append(
            {
                "topic": topic_partition[0],
                "partition": topic_partition[1],
                "committed": None if at is None else at.offset,
                "metadata": None if at is None else at.metadata,
                "end": end,
                "lag": None if at is None or end is None else max(0, end - at.offset),
                "member": reader.id if reader else None,
                "instance": reader.instance_id if reader else None,
                "client": reader.client_id if reader else None,
                "host": reader.host if reader else None,
            }
        )
    return {
        "name": group.id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "lag": sum(one["lag"] or 0 for one in partitions),
        "partitions": partitions,
        "members": [member_fields(member) for member in group.members],
    }


def _or_dash(value: str | int | None) -> str:
    return "-" if value is None else str(value)
