"""`flintmq quota set`."""

from __future__ import annotations

from typing import Any

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.exit_codes import UsageFailure
from flintmq.cli.common.output import print_json, print_table
from flintmq.cli.quota.options import (
    COLUMNS,
    QUOTAS,
    entity_options,
    json_of,
    read_entity,
    read_limit,
    rows_of,
)
from flintmq.client.admin.quotas import EntityQuotas, alter_quotas


def _quota_options(command: Any) -> Any:
    for quota, words in reversed(QUOTAS.items()):
        command = click.option(f"--{quota.replace('_', '-')}", quota, metavar="N", help=words)(command)
    return command


@click.command(
    "set",
    cls=Command,
    examples=(
        "flintmq quota set --user alice --producer-byte-rate 1mb --consumer-byte-rate 2mb",
        "flintmq quota set --user alice --client-id nightly --producer-byte-rate 10mb",
        "flintmq quota set --default-client-id --request-percentage 25",
        "flintmq quota set --default-user --controller-mutation-rate 5",
        "flintmq quota set --default-ip --connection-creation-rate 20",
    ),
)
@entity_options
@_quota_options
@bootstrap_option
@json_option
def command(
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    ip: str | None,
    default_ip: bool,
    producer_byte_rate: str | None,
    consumer_byte_rate: str | None,
    request_percentage: str | None,
    controller_mutation_rate: str | None,
    connection_creation_rate: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Limit how fast users, client ids and addresses may go.

    Of the quotas that match a client the most specific one holds: user and client id together, then the user, then
    the client id; a name before a default. Clients that go faster are not read from for a while, and responses tell
    them for how long. A quota is in force at once, on connections that are open too.
    """
    entity = read_entity(user, default_user, client_id, default_client_id, ip, default_ip)
    if not entity:
        raise UsageFailure("Say for whom: --user, --client-id or both, or --ip; each has a --default-… too.")
    given = {
        "producer_byte_rate": producer_byte_rate,
        "consumer_byte_rate": consumer_byte_rate,
        "request_percentage": request_percentage,
        "controller_mutation_rate": controller_mutation_rate,
        "connection_creation_rate": connection_creation_rate,
    }
    quotas = {quota: read_limit(quota, text) for quota, text in given.items() if text is not None}
    if not quotas:
        raise UsageFailure("Say how fast, for example --producer-byte-rate 1mb.")
    with open_client(bootstrap) as client:
        alter_quotas(client, entity, quotas)
    found = EntityQuotas(entity, quotas)
    if as_json:
        print_json(json_of(found))
    else:
        print_table(COLUMNS, rows_of(found), numbers=("limit",))
