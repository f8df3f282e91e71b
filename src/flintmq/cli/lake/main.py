"""`flintmq lake`: the table of its commands."""

from __future__ import annotations

from flintmq.cli.common.command import CommandEntry, LazyGroup

COMMANDS = {
    "sync": CommandEntry("flintmq.cli.lake.sync", "Copy topics into tables, each record exactly once."),
    "status": CommandEntry(
        "flintmq.cli.lake.status",
        "Show how far tables are behind their topics, by partition, and what they hold.",
    ),
    "files": CommandEntry(
        "flintmq.cli.lake.files",
        "List the files that a table consists of now, a line each, in the order of partitions and offsets.",
    ),
    "compact": CommandEntry(
        "flintmq.cli.lake.compact",
        "Merge small files of tables into larger ones, the same rows in the same order.",
    ),
    "backfill": CommandEntry(
        "flintmq.cli.lake.backfill",
        "Fill columns that were added later, from the topic, in the rows that were there before.",
    ),
    "latest": CommandEntry(
        "flintmq.cli.lake.latest",
        "Bring the table TABLE__latest up to date: of each key in TABLE the last row, as a compacted topic has it.",
    ),
    "audit": CommandEntry(
        "flintmq.cli.lake.audit", "Compare every row of tables with the records of their topics, in one pass."
    ),
    "replay": CommandEntry(
        "flintmq.cli.lake.replay",
        "Write the rows of a table to a topic as they were, or quarantined records to their table.",
    ),
    "quarantine": CommandEntry(
        "flintmq.cli.lake.quarantine.main",
        "List, show and discard records that could not be decoded.",
    ),
    "rebuild": CommandEntry(
        "flintmq.cli.lake.rebuild",
        "Write all rows of a table again from its topic, and swap them in with one commit.",
    ),
    "rename": CommandEntry(
        "flintmq.cli.lake.rename",
        "Give a topic's table another name, with its quarantine and its table of latest rows.",
    ),
    "drop": CommandEntry(
        "flintmq.cli.lake.drop",
        "Delete a table with its files, its quarantine, its table of latest rows and its group.",
    ),
    "clean": CommandEntry(
        "flintmq.cli.lake.clean",
        "Delete files that no version of the table needs and nobody can commit any more.",
    ),
}

command = LazyGroup(
    name="lake",
    entries=COMMANDS,
    help="Turn topics into tables, and back: Parquet, Iceberg and Delta, in a directory or an object store.",
    epilog="\b\nExamples:\n  flintmq lake sync orders --to /srv/lake\n"
    "  flintmq lake sync orders --to s3://lake --format delta --interval 30s\n"
    "  flintmq lake status orders --to /srv/lake",
)
