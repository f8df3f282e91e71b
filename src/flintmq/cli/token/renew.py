"""`flintmq token renew`."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, open_client
from flintmq.cli.common.option_values import parse_duration_ms
from flintmq.cli.common.output import time_of
from flintmq.cli.token.options import find_token
from flintmq.client.admin.tokens import renew_token


@click.command(
    "renew",
    cls=Command,
    examples=("flintmq token renew Lq8Yt0a3RrGJd7rRk1xk4w", "flintmq token renew ID --for 12h"),
)
@click.argument("token_id", metavar="ID")
@click.option(
    "--for",
    "period",
    metavar="DURATION",
    help="From now on. [delegation.token.expiry.time.ms of the broker, which is the most, too]",
)
@bootstrap_option
def command(token_id: str, period: str | None, bootstrap: str) -> None:
    """Move the end of a token further away.

    Its owner and its renewers may, until its maximum lifetime is over. An expired token cannot be renewed.
    """
    period_ms = -1 if period is None else parse_duration_ms("--for", period)
    with open_client(bootstrap) as client:
        expires_ms = renew_token(client, find_token(client, token_id).hmac, period_ms)
    click.echo(f"{token_id} expires {time_of(expires_ms)}.")
