"""`flintmq pipeline`: the table of its commands."""

from __future__ import annotations

from flintmq.cli.common.command import CommandEntry, LazyGroup

COMMANDS = {
    "validate": CommandEntry(
        "flintmq.cli.pipeline.validate", "Say everything that is wrong with a pipeline's file."
    ),
    "plan": CommandEntry(
        "flintmq.cli.pipeline.plan", "Draw what a pipeline does, from its sources to its sinks."
    ),
    "schema": CommandEntry(
        "flintmq.cli.pipeline.schema", "Print the JSON schema of a pipeline's file, for editors."
    ),
    "run": CommandEntry("flintmq.cli.pipeline.run", "Run a pipeline until it is done or stopped."),
    "status": CommandEntry(
        "flintmq.cli.pipeline.status",
        "Show what pipelines do: whether they run, how far they are, and how they ended.",
    ),
    "stop": CommandEntry(
        "flintmq.cli.pipeline.stop", "End a pipeline that runs, once its batches under way are done."
    ),
    "replay": CommandEntry(
        "flintmq.cli.pipeline.replay", "Send dead letters, or old records, through a pipeline again."
    ),
}

command = LazyGroup(
    name="pipeline",
    entries=COMMANDS,
    help="Check, draw and run pipelines that are declared in a file.",
    epilog="\b\nExamples:\n  flintmq pipeline validate orders.yaml\n  flintmq pipeline plan orders.yaml\n"
    "  flintmq pipeline run orders.yaml --once",
)
