"""`flintmq transaction list`."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.option_values import parse_duration_ms
from flintmq.cli.common.output import note, print_json, print_table
from flintmq.client.admin.transactions import STATES, UNDER_WAY, list_transactions
from flintmq.errors import ConfigurationError, ErrorCode, RequestError


@click.command(
    "list",
    cls=Command,
    examples=(
        "flintmq transaction list",
        "flintmq transaction list --duration 15m",
        "flintmq transaction list --state Ongoing --match 'payments-.*'",
        "flintmq transaction list --json | jq -r '.[].name'",
    ),
)
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help=f"Only those in this state: {', '.join(STATES)}. May be given several times.",
)
@click.option(
    "--duration",
    metavar="AGE",
    help="Only transactions that began longer ago than 90s, 15m, 1h; without --state, those under way.",
)
@click.option(
    "--match", "pattern", metavar="REGEX", help="Only ids that this regular expression matches as a whole."
)
@bootstrap_option
@json_option
def command(
    states: tuple[str, ...], duration: str | None, pattern: str | None, bootstrap: str, as_json: bool
) -> None:
    """List the transactional ids and their states.

    An id is Ongoing from the first record of a transaction to its commit or abort, in a Prepare state while the
    partitions are told, and in a Complete state until the next transaction; Empty if it has had none yet.
    """
    wanted = _titles(states)
    older_than_ms = None
    if duration is not None:
        older_than_ms = parse_duration_ms("--duration", duration)
        # What is over has a beginning too.
        wanted = wanted or list(UNDER_WAY)
    with open_client(bootstrap) as client:
        try:
            found = list_transactions(client, states=wanted, older_than_ms=older_than_ms, pattern=pattern)
        except RequestError as error:
            if error.code is not ErrorCode.INVALID_REGULAR_EXPRESSION:
                raise
            raise ConfigurationError(f"--match {pattern}: not a regular expression of RE2's kind") from error
    if as_json:
        print_json(
            [
                {
                    "name": one.id,
                    "state": one.state,
                    "producer_id": one.producer_id,
                    "coordinator": one.coordinator,
                }
                for one in found
            ]
        )
    elif found:
        print_table(
            ("transactional id", "state", "producer", "coordinator"),
            [(one.id, one.state, str(one.producer_id), str(one.coordinator)) for one in found],
            numbers=("producer", "coordinator"),
        )
    else:
        note("There are no transactional ids" + (" like that." if wanted or pattern else "."))


def _titles(states: tuple[str, ...]) -> list[str]:
    """As brokers spell them."""
    known = {state.lower(): state for state in STATES}
    for state in states:
        if state.lower() not in known:
            raise ConfigurationError(f"--state {state}: expected one of {', '.join(STATES)}")
    return [known[state.lower()] for state in states]
