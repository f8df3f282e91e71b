"""`flintmq topic describe`."""

from __future__ import annotations

from typing import Any

import click

from flintmq.cli.commands import Command
from flintmq.cli.connecting import bootstrap_option, json_option, open_client
from flintmq.cli.output import many, print_json, print_table, size
from flintmq.client.admin import EARLIEST, LATEST, describe_topic_settings, offsets, sizes
from flintmq.client.cluster import ClusterClient
from flintmq.model.uuids import encode_uuid


@click.command(
    "describe",
    cls=Command,
    examples=("flintmq topic describe orders", "flintmq topic describe orders --all-settings"),
)
@click.argument("topic")
@click.option("--all-settings", is_flag=True, help="Show also the settings that are at their defaults.")
@bootstrap_option
@json_option
def command(topic: str, all_settings: bool, bootstrap: str, as_json: bool) -> None:
    """Show a topic's partitions, offsets, sizes and settings.

    Of the settings, those that differ from the defaults.
    """
    with open_client(bootstrap) as client:
        found = _describe(client, topic, all_settings)
    if as_json:
        print_json(found)
        return
    records = sum(one["end"] - one["start"] for one in found["partitions"] if one["end"] is not None)
    total = size(sum(one["bytes"] or 0 for one in found["partitions"]))
    click.secho(topic, bold=True, nl=False)
    click.echo(f": {many(len(found['partitions']), 'partition')}, {many(records, 'record')}, {total}")
    click.echo(f"id {found['id']}\n")
    print_table(
        ("partition", "leader", "replicas", "in sync", "start", "end", "size"),
        [
            (
                str(one["partition"]),
                "none" if one["leader"] < 0 else str(one["leader"]),
                ",".join(map(str, one["replicas"])),
                ",".join(map(str, one["in_sync"])),
                _number(one["start"]),
                _number(one["end"]),
                size(one["bytes"]),
            )
            for one in found["partitions"]
        ],
        numbers=("partition", "leader", "start", "end", "size"),
    )
    if found["settings"]:
        click.echo()
        print_table(
            ("setting", "value", "source"),
            [(one["name"], one["value"] or "", one["source"]) for one in found["settings"]],
        )


def _describe(client: ClusterClient, name: str, all_settings: bool) -> dict[str, Any]:
    topic = client.topic(name)
    led = [(name, index) for index, partition in topic.partitions.items() if partition.leader >= 0]
    starts, ends = offsets(client, led, EARLIEST), offsets(client, led, LATEST)
    bytes_of = sizes(client, [name])
    settings = describe_topic_settings(client, name)
    return {
        "name": name,
        "id": encode_uuid(topic.id),
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": index,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "in_sync": list(partition.in_sync),
                "start": starts.get((name, index)),
                "end": ends.get((name, index)),
                "bytes": bytes_of.get((name, index)),
            }
            for index, partition in topic.partitions.items()
        ],
        "settings": [
            {
                "name": one.name,
                "value": one.value,
                "source": "unknown" if one.source is None else _SOURCES[one.source.name],
            }
            for one in settings
            if all_settings or not one.is_default
        ],
    }


_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker, changed while running",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "cluster, changed while running",
    "STATIC_BROKER_CONFIG": "broker",
    "DEFAULT_CONFIG": "default",
}


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
