"""`flintmq lake quarantine`: the table of its commands."""

from __future__ import annotations

from flintmq.cli.common.command import CommandEntry, LazyGroup

COMMANDS = {
    "list": CommandEntry(
        "flintmq.cli.lake.quarantine.list", "List quarantined records, with where they were and their errors."
    ),
    "show": CommandEntry(
        "flintmq.cli.lake.quarantine.show", "Show one quarantined record with key, value and headers."
    ),
    "discard": CommandEntry(
        "flintmq.cli.lake.quarantine.discard", "Discard quarantined records that nobody wants any more."
    ),
}

command = LazyGroup(
    name="quarantine",
    entries=COMMANDS,
    help="List, show and discard records that could not be decoded.\n\n"
    "flintmq lake replay --quarantined brings those back that can be decoded by now.",
    epilog="\b\nExamples:\n  flintmq lake quarantine list orders --to /srv/lake\n"
    "  flintmq lake quarantine show orders 1:716 --to /srv/lake\n"
    "  flintmq lake quarantine discard orders 1:716 --to /srv/lake",
)
