"""`flintmq group`: the table of its commands."""

from __future__ import annotations

from flintmq.cli.commands import Entry, LazyGroup

COMMANDS = {
    "list": Entry("flintmq.cli.group_list", "List the consumer groups and their states."),
    "describe": Entry("flintmq.cli.group_describe", "Show how far a group has read, and who reads what."),
    "members": Entry("flintmq.cli.group_members", "Show the members of a group and what they read."),
    "reset-offsets": Entry("flintmq.cli.group_reset", "Set where a group without members goes on reading."),
    "delete": Entry("flintmq.cli.group_delete", "Delete groups without members, and their offsets."),
}

command = LazyGroup(
    name="group",
    entries=COMMANDS,
    help="List, describe, reset and delete consumer groups.",
    epilog="\b\nExamples:\n  flintmq group describe billing\n"
    "  flintmq group reset-offsets billing --topic orders --to-earliest --dry-run",
)
