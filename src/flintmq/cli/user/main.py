"""`flintmq user`: the table of its commands."""

from __future__ import annotations

from flintmq.cli.common.command import CommandEntry, LazyGroup

COMMANDS = {
    "add": CommandEntry("flintmq.cli.user.add", "Add a user, or set its password."),
    "list": CommandEntry("flintmq.cli.user.list", "List the users and their mechanisms."),
    "delete": CommandEntry("flintmq.cli.user.delete", "Delete a user's credentials."),
}

command = LazyGroup(
    name="user",
    entries=COMMANDS,
    help="Add, list and delete the users that authenticate with SASL.",
    epilog="\b\nExamples:\n  flintmq user add admin --data-dir ./flintmq-data\n"
    "  flintmq user add alice --command-config admin.properties\n  flintmq user list",
)
