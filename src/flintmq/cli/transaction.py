"""`flintmq transaction`: the table of its commands."""

from __future__ import annotations

from flintmq.cli.commands import Entry, LazyGroup

COMMANDS = {
    "list": Entry("flintmq.cli.transaction_list", "List the transactional ids and their states."),
    "describe": Entry(
        "flintmq.cli.transaction_describe", "Show what a transaction touches, and how long it has lasted."
    ),
    "abort": Entry(
        "flintmq.cli.transaction_abort", "End an open transaction that its producer does not end."
    ),
    "find-hanging": Entry(
        "flintmq.cli.transaction_hanging", "Find open transactions that no coordinator knows any more."
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
