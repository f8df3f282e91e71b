"""`flintmq group`: the table of its commands."""

from __future__ import annotations

from flintmq.cli.common.command import CommandEntry, LazyGroup

COMMANDS = {
    "list": CommandEntry("flintmq.cli.group.list", "List the consumer groups and their states."),
    "describe": CommandEntry(
        "flintmq.cli.group.describe", "Show how far a group has read, and who reads what."
    ),
    "members": CommandEntry("flintmq.cli.group.members", "Show the members of a group and what they read."),
    "reset-offsets": CommandEntry(
        "flintmq.cli.group.reset_offsets", "Set where a group without members goes on reading."
    ),
    "delete": CommandEntry("flintmq.cli.group.delete", "Delete groups without members, and their offsets."),
}

command = LazyGroup(
    name="group",
    entries=COMMANDS,
    help="List, describe, reset and delete consumer groups.",
    epilog="\b\nExamples:\n  flintmq group describe billing\n"
    "  flintmq group reset-offsets billing --topic orders --to-earliest --dry-run",
)
