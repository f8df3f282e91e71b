"""`flintmq topic`: the table of its commands."""

from __future__ import annotations

from flintmq.cli.common.command import CommandEntry, LazyGroup

COMMANDS = {
    "list": CommandEntry(
        "flintmq.cli.topic.list", "List the topics with their partitions, records and sizes."
    ),
    "create": CommandEntry("flintmq.cli.topic.create", "Create a topic."),
    "describe": CommandEntry(
        "flintmq.cli.topic.describe", "Show a topic's partitions, offsets, sizes and settings."
    ),
    "alter": CommandEntry(
        "flintmq.cli.topic.alter", "Change a topic's settings, or give it more partitions."
    ),
    "compact": CommandEntry(
        "flintmq.cli.topic.compact", "Compact a topic now: of each key the last record stays."
    ),
    "retain": CommandEntry(
        "flintmq.cli.topic.retain", "Apply a topic's retention now: what is too old or too much goes."
    ),
    "delete": CommandEntry("flintmq.cli.topic.delete", "Delete topics and all their records."),
}

command = LazyGroup(
    name="topic",
    entries=COMMANDS,
    help="List, create, describe, change, clean and delete topics.",
    epilog="\b\nExamples:\n  flintmq topic create orders --partitions 3\n  flintmq topic describe orders",
)
