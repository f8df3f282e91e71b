"""`flintmq ping`: does a broker answer, how fast, and what is it?"""

from __future__ import annotations

import time
from typing import Any

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.exit_codes import LOCAL_CODES, CommandFailure, Exit, failure_of
from flintmq.cli.common.output import many, print_json
from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import ClientError
from flintmq.protocol.messages import ApiVersionsResponse

_RETRY_S = 0.1


@click.command(
    "ping",
    cls=Command,
    examples=(
        "flintmq ping",
        "flintmq ping -b broker-1:9092 --count 10",
        "flintmq ping --wait 30 && ./start-consumers",
    ),
    exit_codes={**LOCAL_CODES, Exit.FAILED: "no broker answers"},
)
@bootstrap_option
@click.option(
    "--count", default=3, type=click.IntRange(min=1), help="How many questions to time.", show_default=True
)
@click.option(
    "--wait", "wait_s", default=0.0, metavar="SECONDS", help="Go on trying for so long before giving up."
)
@json_option
def command(bootstrap: str, count: int, wait_s: float, as_json: bool) -> None:
    """Ask whether a broker answers, and how fast.

    Shows the time from question to answer, the cluster and its brokers, and the features that the cluster
    has agreed on. The exit code is 1 if nothing answers.
    """
    deadline = time.monotonic() + wait_s
    with open_client(bootstrap) as client:
        while True:
            try:
                found = _ask(client, count)
                break
            except ClientError as error:
                if time.monotonic() >= deadline:
                    raise CommandFailure(failure_of(error).message) from error
                time.sleep(_RETRY_S)
    if as_json:
        print_json(found)
        return
    latency = found["latency_ms"]
    click.echo(
        f"{click.style(found['address'], bold=True)} answers in {latency['min']:.2f} ms "
        f"(median {latency['median']:.2f}, slowest {latency['max']:.2f}, of {count}; "
        f"connecting took {found['connect_ms']:.2f})"
    )
    click.echo(f"  cluster   {found['cluster_id']}")
    for broker in found["brokers"]:
        words = f"broker {broker['id']} at {broker['address']}"
        if broker["rack"]:
            words += f" in rack {broker['rack']}"
        click.echo(f"  {'' if broker is not found['brokers'][0] else 'brokers':<9} {words}")
    features = ", ".join(f"{name} {level}" for name, level in found["features"].items())
    click.echo(f"  features  {features or 'none'}; {many(found['apis'], 'API')}")


def _ask(client: ClusterClient, count: int) -> dict[str, Any]:
    began = time.monotonic()
    connection = client.any()
    connect_ms = (time.monotonic() - began) * 1000
    client.refresh([])
    taken = []
    for _ in range(count):
        began = time.monotonic()
        client.refresh([])
        taken.append((time.monotonic() - began) * 1000)
    taken.sort()
    return {
        "address": str(connection.address),
        "cluster_id": client.metadata.cluster_id,
        "controller": client.metadata.controller,
        "connect_ms": round(connect_ms, 3),
        "latency_ms": {
            "min": round(taken[0], 3),
            "median": round(taken[len(taken) // 2], 3),
            "max": round(taken[-1], 3),
        },
        "brokers": [
            {"id": node, "address": str(address), "rack": client.metadata.racks[node]}
            for node, address in sorted(client.metadata.brokers.items())
        ],
        "features": _features(connection.greeting),
        "apis": len(connection.served),
    }


def _features(greeting: ApiVersionsResponse) -> dict[str, int]:
    return {one.name: one.max_version_level for one in greeting.finalized_features}
