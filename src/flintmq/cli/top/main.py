"""`flintmq top`: a broker at work, live, from what it tells over HTTP."""

from __future__ import annotations

import http.client
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from urllib.parse import urlsplit

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import json_option
from flintmq.cli.common.exit_codes import CommandFailure, Exit, NoBrokerFailure, UsageFailure
from flintmq.cli.common.output import print_json, print_table
from flintmq.cli.top.rates import BrokerRates, compare
from flintmq.cli.top.view import (
    API_COLUMNS,
    CLIENT_COLUMNS,
    PARTITION_COLUMNS,
    api_rows,
    client_rows,
    partition_rows,
    screen,
    summary_rows,
)
from flintmq.metrics import Scrape, parse

DEFAULT_URL = "http://127.0.0.1:30004"
_TIMEOUT_S = 10.0
_BYTES_MAX = 256 << 20


@click.command(
    "top",
    cls=Command,
    examples=(
        "flintmq top",
        "flintmq top --url http://broker-1:30004 --interval 5",
        "flintmq top --once --json",
    ),
    exit_codes={
        Exit.OK: "done",
        Exit.FAILED: "what answers there tells no metrics",
        Exit.USAGE: "wrong usage",
        Exit.NO_BROKER: "nothing answers",
    },
)
@click.option(
    "--url", default=DEFAULT_URL, show_default=True, help="The broker's HTTP listener (flint.rest.port)."
)
@click.option(
    "--interval",
    "interval_s",
    default=2.0,
    show_default=True,
    type=click.FloatRange(min=0.1, max=3600),
    help="Seconds between two looks; rates are of that time.",
)
@click.option("--once", is_flag=True, help="Look twice, one interval apart, print, and end.")
@json_option
def command(url: str, interval_s: float, once: bool, as_json: bool) -> None:
    """Watch a broker at work.

    Requests, bytes and latency by API, the busiest partitions, connected clients, memory, and how late the
    event loop is. Without a terminal, or with --once, it prints one picture and ends; --json goes on line by
    line unless --once is given too.
    """
    looks = _looks(url, interval_s)
    try:
        if once and as_json:
            print_json(asdict(next(looks)))
        elif as_json:
            _print_lines(looks)
        elif once or not sys.stdout.isatty():
            _print(next(looks))
        else:
            _show(looks)
    except KeyboardInterrupt:
        pass  # how one ends it


def _looks(url: str, interval_s: float) -> Iterator[BrokerRates]:
    before, at = scrape(url), time.monotonic()
    while True:
        time.sleep(interval_s)
        after, now = scrape(url), time.monotonic()
        yield compare(before, after, now - at)
        before, at = after, now


def scrape(url: str) -> Scrape:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise UsageFailure(f"{url} is not an address such as {DEFAULT_URL}")
    connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", parts.path.rstrip("/") + "/metrics")
        response = connection.getresponse()
        text = response.read(_BYTES_MAX).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NoBrokerFailure(
            f"nothing answers at {url}: {reason}\nIs the broker's HTTP listener on (flint.rest.port)? Say where "
            "it is with --url."
        ) from error
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise CommandFailure(f"{url}/metrics answers {response.status} {response.reason}")
    try:
        found = parse(text)
    except ValueError as error:
        raise CommandFailure(f"{url}/metrics tells no metrics: {error}") from error
    if "flintmq_build_info" not in found.samples:
        raise CommandFailure(f"what answers at {url} is not FlintMQ")
    return found


def _print_lines(looks: Iterator[BrokerRates]) -> None:
    import json

    for rates in looks:
        click.echo(json.dumps(asdict(rates)))


def _print(rates: BrokerRates) -> None:
    width = max(len(name) for name, _ in summary_rows(rates))
    for name, words in summary_rows(rates):
        click.echo(f"{name:<{width}}  {words}")
    for columns, rows in (
        (API_COLUMNS, api_rows(rates)),
        (PARTITION_COLUMNS, partition_rows(rates)),
        (CLIENT_COLUMNS, client_rows(rates)),
    ):
        if rows:
            click.echo()
            print_table(columns, rows, numbers=columns[1:])


def _show(looks: Iterator[BrokerRates]) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with console.status("looking…"):
        first = next(looks)
    with Live(screen(first), console=console, screen=True, auto_refresh=False) as live:
        for rates in looks:
            live.update(screen(rates), refresh=True)
