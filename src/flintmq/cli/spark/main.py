"""`flintmq spark`: the table of its commands."""

from __future__ import annotations

from flintmq.cli.common.command import CommandEntry, LazyGroup

COMMANDS = {
    "doctor": CommandEntry(
        "flintmq.cli.spark.doctor", "Check that Spark can run here, and say what to do if not."
    ),
    "shell": CommandEntry("flintmq.cli.spark.shell", "Open a PySpark shell that reads and writes topics."),
    "submit": CommandEntry("flintmq.cli.spark.submit", "Run a program on Spark, here or on a cluster."),
    "up": CommandEntry(
        "flintmq.cli.spark.up", "Start Spark in the background, for the commands that come after."
    ),
    "down": CommandEntry("flintmq.cli.spark.down", "End the session that `flintmq spark up` keeps."),
    "status": CommandEntry("flintmq.cli.spark.status", "Show the session that `flintmq spark up` keeps."),
    "env": CommandEntry(
        "flintmq.cli.spark.env", "Print the environment for Spark's own programs, for a shell to run."
    ),
}

command = LazyGroup(
    name="spark",
    entries=COMMANDS,
    help="Read and write topics with Spark: check the machine, open a shell, run programs, keep a session.",
    epilog="\b\nExamples:\n  flintmq spark doctor\n  flintmq spark shell\n  flintmq spark up\n"
    "  flintmq spark submit --master spark://head:7077 job.py",
)
