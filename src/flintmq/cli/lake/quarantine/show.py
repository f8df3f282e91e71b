"""`flintmq lake quarantine show`."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import json_option
from flintmq.cli.common.exit_codes import LOCAL_CODES
from flintmq.cli.common.output import print_json, time_of
from flintmq.cli.common.record_printer import json_bytes, json_headers
from flintmq.cli.lake.options import place_options
from flintmq.cli.lake.quarantine.positions import opened, parse_position


@click.command(
    "show",
    cls=Command,
    examples=(
        "flintmq lake quarantine show orders 1:716 --to /srv/lake",
        "flintmq lake quarantine show orders 1:716 --to /srv/lake --json | jq -r .value",
    ),
    exit_codes=LOCAL_CODES,
)
@click.argument("topic")
@click.argument("position", metavar="PARTITION:OFFSET")
@place_options
@json_option
def command(
    topic: str,
    position: str,
    to: str,
    table_format: str,
    catalog: str | None,
    namespace: str | None,
    store: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show one quarantined record with key, value and headers.

    In JSON, bytes that are not UTF-8 are given in base64, under a name that says so.
    """
    source = opened(topic, to, table_format, catalog, namespace, store)
    from flintmq.lake.quarantine.records import shown

    one = shown(source, parse_position(position))
    if as_json:
        print_json(
            {
                "topic": topic,
                "partition": one.position.partition,
                "offset": one.position.offset,
                "timestamp": one.timestamp_ms,
                "error": one.error,
                **json_bytes("key", one.key),
                **json_bytes("value", one.value),
                "headers": json_headers(one.headers),
            }
        )
        return
    click.echo(f"{topic}-{one.position.partition}, offset {one.position.offset}, {time_of(one.timestamp_ms)}")
    click.echo(f"error: {one.error}")
    for name, content in one.headers:
        click.echo(f"header {name}: {_text(content)}")
    click.echo(f"key: {_text(one.key)}")
    click.echo(f"value: {_text(one.value)}")


def _text(content: bytes | None) -> str:
    """Return what a terminal can show: a text as it is, anything else as Python writes bytes."""
    if content is None:
        return "null"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return repr(content)
    return text if text.isprintable() else repr(content)
