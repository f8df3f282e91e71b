"""`flintmq quota delete`."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, open_client
from flintmq.cli.common.exit_codes import UsageFailure
from flintmq.cli.common.output import note
from flintmq.cli.quota.options import QUOTAS, entity_options, read_entity
from flintmq.client.admin.quotas import DEFAULT, EXACT, EntitySelection, alter_quotas, list_quotas


@click.command(
    "delete",
    cls=Command,
    examples=(
        "flintmq quota delete --user alice                                # all quotas of alice",
        "flintmq quota delete --user alice --quota producer_byte_rate",
        "flintmq quota delete --default-client-id",
    ),
)
@entity_options
@click.option(
    "--quota",
    "quotas",
    multiple=True,
    type=click.Choice(list(QUOTAS)),
    help="Delete this quota only; may be given several times. [all]",
)
@bootstrap_option
def command(
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    ip: str | None,
    default_ip: bool,
    quotas: tuple[str, ...],
    bootstrap: str,
) -> None:
    """Delete the quotas of a user, a client id, both together, or an address.

    Only the entity that is named loses its quotas: --user alice leaves those of alice with a client id. Clients that
    are throttled and have no quota any more go on at once.
    """
    entity = read_entity(user, default_user, client_id, default_client_id, ip, default_ip)
    if not entity:
        raise UsageFailure("Say whose: --user, --client-id or both, or --ip; each has a --default-… too.")
    selections = [
        EntitySelection(kind, DEFAULT if name is None else EXACT, name) for kind, name in entity.items()
    ]
    with open_client(bootstrap) as client:
        found = list_quotas(client, selections, strict=True)
        present = [quota for one in found for quota in one.quotas if not quotas or quota in quotas]
        if not present:
            note("There are no such quotas.")
            return
        alter_quotas(client, entity, dict.fromkeys(present))
    note(f"Deleted {', '.join(sorted(present))}.")
