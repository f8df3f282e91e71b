"""`flintmq topic describe`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.output import many, print_json, print_table, ranges_fields, ranges_text, size
from flintmq.client.admin.maintenance import PartitionHealth, topic_health
from flintmq.client.admin.topics import (
    EARLIEST,
    LATEST,
    TopicSetting,
    describe_topic_settings,
    offsets,
    sizes,
)
from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import NotFlintMQ
from flintmq.records.uuids import encode_uuid


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

    Of the settings, those that differ from the defaults. Of partitions that are not well, what is wrong with them.
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
    for one in found["partitions"]:
        for words in _ailments(one):
            click.secho(f"partition {one['partition']}: {words}", fg="red")
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
    health = _health(client, name, settings)
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
                **_health_fields(health.get(index)),
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


def _health(client: ClusterClient, name: str, settings: Sequence[TopicSetting]) -> dict[int, PartitionHealth]:
    """Only a broker that has settings of FlintMQ's own is asked: others would close the connection."""
    if not any(one.name.startswith("flint.") for one in settings):
        return {}
    try:
        return topic_health(client, name)
    except NotFlintMQ:
        return {}


def _health_fields(health: PartitionHealth | None) -> dict[str, Any]:
    return {
        "offline": health.offline if health else None,
        "uncleanable": health.uncleanable if health else None,
        "damaged": ranges_fields(health.damaged) if health else [],
        "damaged_count": health.damaged_count if health else 0,
        "retention_risk": health.retention_risk if health else None,
    }


def _ailments(partition: dict[str, Any]) -> Iterator[str]:
    if partition["offline"]:
        yield f"offline: {partition['offline']}"
    if partition["damaged"]:
        ranges = [(one["first_offset"], one["last_offset"] + 1) for one in partition["damaged"]]
        yield f"damaged and refused: {ranges_text(ranges, partition['damaged_count'])}"
    if partition["uncleanable"]:
        yield f"not compacted any more: {partition['uncleanable']}"
    if partition["retention_risk"]:
        yield partition["retention_risk"]


_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker, changed while running",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "cluster, changed while running",
    "STATIC_BROKER_CONFIG": "broker",
    "DEFAULT_CONFIG": "default",
}


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
