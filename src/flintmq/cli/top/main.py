"""`flintmq top`: a broker at work, live, from what it tells over HTTP."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import client_security, command_config_option, json_option
from flintmq.cli.common.exit_codes import Exit
from flintmq.cli.common.output import print_json, print_table
from flintmq.cli.top.rates import BrokerRates, compare
from flintmq.cli.top.scrape import DEFAULT_URL, scrape
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
from flintmq.client.security import ClientSecurity


@click.command(
    "top",
    cls=Command,
    examples=(
        "flintmq top",
        "flintmq top --url http://broker-1:30004 --interval 5",
        "flintmq top --url https://broker-1:30004 --command-config admin.properties",
        "flintmq top --once --json",
    ),
    exit_codes={
        Exit.OK: "done",
        Exit.FAILED: "what answers there has no metrics, or does not show them to this user",
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
@command_config_option
@json_option
def command(url: str, interval_s: float, once: bool, as_json: bool) -> None:
    """Watch a broker at work.

    Requests, bytes and latency by API, the busiest partitions, connected clients, memory, and how late the
    event loop is. Without a terminal, or with --once, it prints one picture and ends; --json goes on line by
    line unless --once is given too.

    A port that asks for credentials gets those of --command-config (sasl.username and sasl.password, a token of
    OAUTHBEARER, or a client certificate); ssl.ca.location is the CA of an https address.
    """
    looks = _looks(url, client_security(), interval_s)
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


def _looks(url: str, security: ClientSecurity, interval_s: float) -> Iterator[BrokerRates]:
    before, at = scrape(url, security), time.monotonic()
    while True:
        time.sleep(interval_s)
        after, now = scrape(url, security), time.monotonic()
        yield compare(before, after, now - at)
        before, at = after, now


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
