"""`flintmq produce`: arguments, the lines of a file or of standard input, as records."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.exit_codes import CommandFailure
from flintmq.cli.common.output import many, note, print_json
from flintmq.cli.common.record_printer import unescape
from flintmq.cli.produce.record_lines import RecordLineParser, parse_headers, read_lines
from flintmq.client.producer import ALL, LEADER, NONE, Delivery, Producer
from flintmq.errors import FlintError
from flintmq.records.compression import Codec

_ACKS = {"0": NONE, "1": LEADER, "all": ALL, "-1": ALL}
_CODECS = {codec.label: codec for codec in Codec}


@click.command(
    "produce",
    cls=Command,
    examples=(
        'flintmq produce greetings "hello world" "hello again"',
        "flintmq produce orders --key-separator : --file orders.txt --codec zstd",
        "tail -f app.log | flintmq produce logs --header host=web-1",
        "flintmq produce users --key user-17 --null DELETED DELETED",
    ),
)
@click.argument("topic")
@click.argument("messages", nargs=-1, metavar="[MESSAGE]...")
@click.option("--key", help="The key of every record.")
@click.option(
    "--key-separator", metavar="TEXT", help="Each line is a key, this text, and the value. \\t is a tab."
)
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of every record.")
@click.option("--partition", type=click.IntRange(min=0), help="Write to this partition. [by key, or spread]")
@click.option(
    "--codec", type=click.Choice(list(_CODECS)), default="none", help="Compression.", show_default=True
)
@click.option(
    "--acks",
    type=click.Choice(list(_ACKS)),
    default="all",
    show_default=True,
    help="Whose word to wait for: nobody's, the leader's, all replicas'.",
)
@click.option("--file", "path", type=click.Path(), help="Take the lines of this file.")
@click.option(
    "--null", metavar="TEXT", help="A key or value that is this text is null: a deletion, where compacted."
)
@bootstrap_option
@json_option
def command(
    topic: str,
    messages: tuple[str, ...],
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    codec: str,
    acks: str,
    path: str | None,
    null: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Write records to a topic.

    Each MESSAGE is one record. Without any, each line of --file or of standard input is. With acks=all (the
    default) nothing is written twice, even where a connection breaks. What was written is told on standard
    error, or as JSON on standard output.
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator exclude each other.")
    if messages and path is not None:
        raise click.UsageError("messages are given both as arguments and by --file.")
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty.")
    text = RecordLineParser(
        key=None if key is None else key.encode(),
        separator=None if key_separator is None else unescape(key_separator).encode(),
        null=None if null is None else null.encode(),
    )
    record_headers = parse_headers(headers)
    with open_client(bootstrap) as client:
        producer = Producer(
            client,
            client.topic(topic, create=True),
            acks=_ACKS[acks],
            codec=_CODECS[codec],
            first_partition=int.from_bytes(os.urandom(4), "big"),
        )
        totals = _Totals(topic)
        try:
            with contextlib.suppress(KeyboardInterrupt), _lines(messages, path) as lines:
                for line in lines:
                    if line is not None:
                        record_key, value = text.read(line)
                        producer.send(value, key=record_key, headers=record_headers, partition=partition)
                    if line is None or producer.is_full:
                        producer.flush()
                        totals.add(producer.delivered)
            producer.flush()
        except FlintError as error:
            totals.add(producer.delivered)
            if totals.records:
                raise CommandFailure(f"{error}\n{totals} before that") from error
            raise
        totals.add(producer.delivered)
    if as_json:
        print_json(totals.as_json())
    else:
        note(f"{totals}.")


@contextlib.contextmanager
def _lines(messages: Sequence[str], path: str | None) -> Iterator[Iterator[bytes | None]]:
    if messages:
        yield iter([message.encode("utf-8", "surrogateescape") for message in messages])
        return
    if path is not None:
        try:
            file = open(path, "rb")  # noqa: SIM115 - closed by the with below; only opening may fail here
        except OSError as error:
            raise CommandFailure(f"{path} cannot be read: {error.strerror}") from None
        with file:
            yield read_lines(file.fileno())
        return
    if sys.stdin.isatty():
        note("One record for each line; Ctrl-D ends.")
    yield read_lines(sys.stdin.fileno())


class _Totals:
    """What was written where."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.records = 0
        self._partitions: dict[int, list[int]] = {}

    def add(self, delivered: list[Delivery]) -> None:
        for partition, base_offset, count in delivered:
            self.records += count
            total = self._partitions.setdefault(partition, [0, base_offset, base_offset])
            total[0] += count
            total[2] = base_offset + count - 1 if base_offset >= 0 else -1
        delivered.clear()

    def __str__(self) -> str:
        if not self.records:
            return f"Nothing was written to {self.topic}"
        verb = "was" if self.records == 1 else "were"
        where = ", ".join(
            f"partition {partition}" + (f" from offset {first}" if first >= 0 else "")
            for partition, (_, first, _) in sorted(self._partitions.items())
        )
        return f"{many(self.records, 'record')} {verb} written to {self.topic} ({where})"

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "records": self.records,
            "partitions": [
                {"partition": partition, "records": count, "first_offset": first, "last_offset": last}
                for partition, (count, first, last) in sorted(self._partitions.items())
            ],
        }
