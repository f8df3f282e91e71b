"""`flintmq quota`: the table of its commands."""

from __future__ import annotations

from flintmq.cli.common.command import CommandEntry, LazyGroup

COMMANDS = {
    "set": CommandEntry("flintmq.cli.quota.set", "Limit how fast users, client ids and addresses may go."),
    "list": CommandEntry("flintmq.cli.quota.list", "List the quotas, all or some."),
    "delete": CommandEntry(
        "flintmq.cli.quota.delete", "Delete the quotas of a user, a client id, both together, or an address."
    ),
}

command = LazyGroup(
    name="quota",
    entries=COMMANDS,
    help="Set, list and delete quotas: how fast users, client ids and addresses may go.",
    epilog="\b\nExamples:\n  flintmq quota set --user alice --producer-byte-rate 1mb\n"
    "  flintmq quota set --default-client-id --consumer-byte-rate 10mb\n  flintmq quota list\n"
    "  flintmq quota delete --user alice",
)
