"""`flintmq token list`."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.output import note, print_json, print_table
from flintmq.cli.token.options import COLUMNS, json_of, read_principals, row_of
from flintmq.client.admin.tokens import list_tokens


@click.command(
    "list",
    cls=Command,
    examples=(
        "flintmq token list",
        "flintmq token list --owner User:bob",
        "flintmq token list --json --with-hmac",
    ),
)
@click.option(
    "--owner",
    "owners",
    metavar="PRINCIPAL",
    multiple=True,
    help="Only tokens that this principal owns or may renew; may be given several times.",
)
@click.option("--with-hmac", is_flag=True, help="With --json: print the HMACs too. They are secrets.")
@bootstrap_option
@json_option
def command(owners: tuple[str, ...], with_hmac: bool, bootstrap: str, as_json: bool) -> None:
    """List the tokens that you may see.

    Those are your own, those that you may renew, and those that ACLs let you see: Describe on the token, or
    DescribeTokens on its owner.
    """
    wanted = read_principals("--owner", owners) or None
    with open_client(bootstrap) as client:
        tokens = list_tokens(client, wanted)
    if as_json:
        print_json([json_of(token, with_hmac=with_hmac) for token in tokens])
    elif tokens:
        print_table(COLUMNS, [row_of(token) for token in tokens])
    else:
        note("There are no such tokens.")
