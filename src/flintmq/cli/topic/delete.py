"""`flintmq topic delete`."""

from __future__ import annotations

import sys

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.output import print_json
from flintmq.client.admin.topics import delete_topic
from flintmq.errors import ErrorCode, RequestError


@click.command(
    "delete",
    cls=Command,
    examples=("flintmq topic delete orders", "flintmq topic delete --if-exists --yes scratch-1 scratch-2"),
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--if-exists", is_flag=True, help="Do nothing about a topic that is not there.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@bootstrap_option
@json_option
def command(topics: tuple[str, ...], if_exists: bool, yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete topics and all their records.

    There is no way back. At a terminal you are asked first, unless you say --yes.
    """
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(topics)} with all records?", abort=True, err=True)
    deleted = []
    with open_client(bootstrap) as client:
        for topic in topics:
            try:
                delete_topic(client, topic)
                deleted.append(topic)
            except RequestError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                if not if_exists:
                    raise RequestError(error.code, f"there is no topic {topic}") from error
    if as_json:
        print_json({"deleted": deleted})
        return
    for topic in deleted:
        click.echo(f"Deleted {topic}.")
