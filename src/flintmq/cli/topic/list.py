"""`flintmq topic list`."""

from __future__ import annotations

import fnmatch
from typing import Any

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.output import note, print_json, print_table, size
from flintmq.client.admin.topics import EARLIEST, LATEST, offsets, sizes


@click.command(
    "list",
    cls=Command,
    examples=(
        "flintmq topic list",
        "flintmq topic list 'orders.*'",
        "flintmq topic list --json | jq -r '.[].name'",
    ),
)
@click.argument("pattern", required=False)
@click.option("--internal", is_flag=True, help="Show the broker's own topics too.")
@bootstrap_option
@json_option
def command(pattern: str | None, internal: bool, bootstrap: str, as_json: bool) -> None:
    """List the topics with their partitions, records and sizes.

    PATTERN selects by name, with * and ? as in a shell. The number of records is counted from the offsets:
    a compacted topic holds fewer.
    """
    with open_client(bootstrap) as client:
        topics = [
            topic
            for topic in client.all_topics().values()
            if (internal or not topic.is_internal) and fnmatch.fnmatchcase(topic.name, pattern or "*")
        ]
        # A partition without a leader at the moment cannot be asked; the others still are.
        led = [
            (topic.name, partition.index)
            for topic in topics
            for partition in topic.partitions.values()
            if partition.leader >= 0
        ]
        starts, ends = offsets(client, led, EARLIEST), offsets(client, led, LATEST)
        bytes_of = sizes(client, [topic.name for topic in topics])
    listed: list[dict[str, Any]] = []
    for topic in topics:
        topic_partitions = [(topic.name, index) for index in topic.partitions]
        listed.append(
            {
                "name": topic.name,
                "partitions": len(topic.partitions),
                "replication_factor": topic.replication_factor,
                "records": sum(
                    ends[topic_partition] - starts[topic_partition]
                    for topic_partition in topic_partitions
                    if topic_partition in ends
                ),
                "bytes": sum(bytes_of.get(topic_partition, 0) for topic_partition in topic_partitions),
                "internal": topic.is_internal,
            }
        )
    if as_json:
        print_json(listed)
    elif listed:
        print_table(
            ("topic", "partitions", "replicas", "records", "size"),
            [
                (
                    one["name"],
                    str(one["partitions"]),
                    str(one["replication_factor"]),
                    f"{one['records']:,}",
                    size(one["bytes"]),
                )
                for one in listed
            ],
            numbers=("partitions", "replicas", "records", "size"),
        )
    else:
        note("There are no topics" + (f" like {pattern}." if pattern else "."))
