"""`flintmq topic alter`."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.output import print_json
from flintmq.cli.common.settings_options import parse_topic_settings, refuse_near_miss
from flintmq.client.admin.topics import add_partitions, alter_topic


@click.command(
    "alter",
    cls=Command,
    examples=(
        "flintmq topic alter orders --config retention.ms=30d",
        "flintmq topic alter orders --reset retention.ms",
        "flintmq topic alter orders --partitions 6",
    ),
)
@click.argument("topic")
@click.option(
    "--partitions", type=click.IntRange(min=1), help="Have so many partitions from now on, more than before."
)
@click.option(
    "--config", "assignments", multiple=True, metavar="NAME=VALUE", help="Set a setting of the topic."
)
@click.option(
    "--reset", "resets", multiple=True, metavar="NAME", help="Let a setting have its default again."
)
@bootstrap_option
@json_option
def command(
    topic: str,
    partitions: int | None,
    assignments: tuple[str, ...],
    resets: tuple[str, ...],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Change a topic's settings, or give it more partitions.

    Partitions can only be added. Records with a key that are written afterwards may go to another partition
    than earlier records of that key.
    """
    configs = parse_topic_settings(assignments)
    for name in resets:
        refuse_near_miss(name)
    if not configs and not resets and partitions is None:
        raise click.UsageError("nothing to change: give --config, --reset or --partitions.")
    with open_client(bootstrap) as client:
        client.topic(topic)
        if configs or resets:
            alter_topic(client, topic, settings=configs, resets=resets)
        if partitions is not None:
            add_partitions(client, topic, partitions)
    if as_json:
        print_json({"name": topic, "set": configs, "reset": list(resets), "partitions": partitions})
        return
    for name, value in configs.items():
        click.echo(f"{topic}: {name} is now {value}.")
    for name in resets:
        click.echo(f"{topic}: {name} has its default again.")
    if partitions is not None:
        click.echo(f"{topic} has {partitions} partitions now.")
