"""`flintmq transaction`: the table of its commands."""

from __future__ import annotations

from flintmq.cli.common.command import CommandEntry, LazyGroup

COMMANDS = {
    "list": CommandEntry("flintmq.cli.transaction.list", "List the transactional ids and their states."),
    "describe": CommandEntry(
        "flintmq.cli.transaction.describe", "Show what a transaction touches, and how long it has lasted."
    ),
    "abort": CommandEntry(
        "flintmq.cli.transaction.abort", "End an open transaction that its producer does not end."
    ),
    "find-hanging": CommandEntry(
        "flintmq.cli.transaction.find_hanging", "Find open transactions that no coordinator knows any more."
    ),
}

command = LazyGroup(
    name="transaction",
    entries=COMMANDS,
    help="List, describe and abort transactions, and find those that hang.",
    epilog="\b\nExamples:\n  flintmq transaction list --duration 15m\n"
    "  flintmq transaction describe payments-1\n"
    "  flintmq transaction find-hanging",
)
