"""`flintmq token expire`."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, open_client
from flintmq.cli.common.option_values import parse_duration_ms
from flintmq.cli.common.output import time_of
from flintmq.cli.token.options import find_token
from flintmq.client.admin.tokens import expire_token


@click.command(
    "expire",
    cls=Command,
    examples=("flintmq token expire Lq8Yt0a3RrGJd7rRk1xk4w", "flintmq token expire ID --in 10m"),
)
@click.argument("token_id", metavar="ID")
@click.option("--in", "period", metavar="DURATION", help="Let it expire then. [remove it now]")
@bootstrap_option
def command(token_id: str, period: str | None, bootstrap: str) -> None:
    """Remove a token, or move its end nearer.

    Its owner and its renewers may. Connections that were authenticated with the token are closed at their next
    request after its end.
    """
    period_ms = -1 if period is None else parse_duration_ms("--in", period)
    with open_client(bootstrap) as client:
        expires_ms = expire_token(client, find_token(client, token_id).hmac, period_ms)
    click.echo(f"Removed {token_id}." if period is None else f"{token_id} expires {time_of(expires_ms)}.")
