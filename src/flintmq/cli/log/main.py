"""`flintmq log`: the table of its commands."""

from __future__ import annotations

from flintmq.cli.common.command import CommandEntry, LazyGroup

COMMANDS = {
    "verify": CommandEntry("flintmq.cli.log.verify", "Check that what is stored is what was written."),
}

command = LazyGroup(
    name="log",
    entries=COMMANDS,
    help="Check the logs of topics.",
    epilog="\b\nExamples:\n  flintmq log verify orders\n  flintmq log verify flintmq-data",
)
