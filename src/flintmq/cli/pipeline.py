"""`flintmq pipeline`: the table of its commands."""

from __future__ import annotations

from flintmq.cli.commands import Entry, LazyGroup

COMMANDS = {
    "validate": Entry(
        "flintmq.cli.pipeline_validate", "Say everything that is wrong with a pipeline's file."
    ),
    "plan": Entry("flintmq.cli.pipeline_plan", "Draw what a pipeline does, from its sources to its sinks."),
}

command = LazyGroup(
    name="pipeline",
    entries=COMMANDS,
    help="Check and draw pipelines that are declared in a file.",
    epilog="\b\nExamples:\n  flintmq pipeline validate orders.yaml\n  flintmq pipeline plan orders.yaml",
)
