"""`flintmq topic create`."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.output import many, print_json
from flintmq.cli.common.settings_options import parse_topic_settings
from flintmq.client.admin.topics import BROKER_DEFAULT, CreatedTopic, create_topic
from flintmq.client.cluster import ClusterClient
from flintmq.errors import ErrorCode, RequestError
from flintmq.records.uuids import encode_uuid


@click.command(
    "create",
    cls=Command,
    examples=(
        "flintmq topic create orders --partitions 3",
        "flintmq topic create clicks --config retention.ms=7d --config max.message.bytes=4MB",
        "flintmq topic create users --config cleanup.policy=compact --if-not-exists",
    ),
)
@click.argument("topic")
@click.option(
    "--partitions", type=click.IntRange(min=1), help="How many partitions. [the broker's num.partitions]"
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1),
    help="Copies of each partition. [the broker's default]",
)
@click.option(
    "--config",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the topic; `flintmq config --topic` lists them.",
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists already.")
@bootstrap_option
@json_option
def command(
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    assignments: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Create a topic."""
    configs = parse_topic_settings(assignments)
    with open_client(bootstrap) as client:
        try:
            made = create_topic(
                client,
                topic,
                partitions=partitions or BROKER_DEFAULT,
                replication_factor=replication_factor or BROKER_DEFAULT,
                configs=configs,
            )
            created = True
        except RequestError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                raise
            made, created = _existing(client, topic), False
    if as_json:
        print_json(
            {
                "name": made.name,
                "id": made.id,
                "partitions": made.partitions,
                "replication_factor": made.replication_factor,
                "created": created,
            }
        )
    elif created:
        click.echo(f"Created {made.name} with {many(made.partitions, 'partition')}.")
    else:
        click.echo(f"{made.name} exists already, with {many(made.partitions, 'partition')}.")


def _existing(client: ClusterClient, name: str) -> CreatedTopic:
    known = client.topic(name)
    return CreatedTopic(name, encode_uuid(known.id), len(known.partitions), known.replication_factor)
