"""`flintmq token create`."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.option_values import parse_duration_ms
from flintmq.cli.common.output import note, print_json, time_of
from flintmq.cli.token.options import json_of, read_principals
from flintmq.client.admin.tokens import create_token


@click.command(
    "create",
    cls=Command,
    examples=(
        "flintmq token create --command-config alice.properties",
        "flintmq token create --max-lifetime 2d --renewer User:scheduler",
        "flintmq token create --owner User:bob         # needs CreateTokens on the user User:bob",
        "flintmq token create --json | jq -r .hmac",
    ),
)
@click.option("--owner", metavar="PRINCIPAL", help="Whom the token authenticates. [you]")
@click.option(
    "--renewer",
    "renewers",
    metavar="PRINCIPAL",
    multiple=True,
    help="Who may renew and expire the token besides its owner; may be given several times.",
)
@click.option(
    "--max-lifetime",
    metavar="DURATION",
    help="How long the token can be renewed at most. [delegation.token.max.lifetime.ms of the broker]",
)
@bootstrap_option
@json_option
def command(
    owner: str | None, renewers: tuple[str, ...], max_lifetime: str | None, bootstrap: str, as_json: bool
) -> None:
    """Create a delegation token.

    A program authenticates with it by SCRAM: the user name is the token's id and the password its HMAC, and the
    option tokenauth=true says that it is a token. The HMAC is a secret. The token expires after the broker's
    delegation.token.expiry.time.ms unless it is renewed.
    """
    lifetime_ms = -1 if max_lifetime is None else parse_duration_ms("--max-lifetime", max_lifetime)
    with open_client(bootstrap) as client:
        token = create_token(
            client,
            owner=read_principals("--owner", [owner])[0] if owner is not None else None,
            renewers=read_principals("--renewer", renewers),
            max_lifetime_ms=lifetime_ms,
        )
    if as_json:
        print_json(json_of(token, with_hmac=True))
        return
    click.echo(f"id       {token.id}\nhmac     {token.hmac}\nowner    {token.owner}")
    click.echo(f"expires  {time_of(token.expires_ms)}, at the latest {time_of(token.max_ms)}")
    note(
        "Java clients: sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="<id>" password="<hmac>" tokenauth="true";'
    )
