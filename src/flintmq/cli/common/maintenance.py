"""What the commands for upkeep on demand share: the work with its progress, its summary, its exit code (R3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from flintmq.cli.common.connection import open_client
from flintmq.cli.common.exit_codes import REMOTE_CODES, Exit
from flintmq.cli.common.output import many, print_json, print_table, ranges_fields, ranges_text, size
from flintmq.cli.common.progress import Progress
from flintmq.client.admin.maintenance import PartitionMaintenance, maintain_topic
from flintmq.protocol.maintenance import MaintenanceAction, MaintenanceState

EXIT_CODES: Final = {**REMOTE_CODES, Exit.FAILED: "a partition failed or is damaged"}

partition_option = click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this partition; may be given several times.",
)

_DOING: Final = {
    MaintenanceAction.COMPACT: "compacting",
    MaintenanceAction.RETAIN: "applying retention",
    MaintenanceAction.VERIFY: "verifying",
}

_PHASES: Final = {"keys": "reading keys", "records": "rewriting segments"}


def carry_out(
    action: MaintenanceAction, topic: str, partitions: Sequence[int], *, bootstrap: str, as_json: bool
) -> None:
    with open_client(bootstrap) as client, Progress() as progress:
        found = maintain_topic(
            client,
            topic,
            action,
            partitions=partitions or None,
            watcher=lambda parts: _tell(progress, action, topic, parts),
        )
    if as_json:
        print_json(
            {"topic": topic, "action": action.name.lower(), "partitions": [_fields(one) for one in found]}
        )
    elif action is MaintenanceAction.VERIFY:
        _print_verified(topic, found)
    else:
        _print_cleaned(topic, action, found)
    if any(one.state is not MaintenanceState.DONE or one.damaged_count for one in found):
        raise SystemExit(Exit.FAILED)


def _tell(
    progress: Progress, action: MaintenanceAction, topic: str, parts: Sequence[PartitionMaintenance]
) -> None:
    """Of the partition that is worked on: how large those are that still wait is not known."""
    over = sum(one.state in (MaintenanceState.DONE, MaintenanceState.FAILED) for one in parts)
    for one in parts:
        if one.state is MaintenanceState.RUNNING:
            phase = f", {_PHASES.get(one.phase, one.phase)}" if one.phase else ""
            words = f"{_DOING[action]} {topic}-{one.partition} ({over + 1} of {len(parts)}){phase}"
            progress.tell_bytes(words, one.bytes_done, one.bytes_total)


def _print_cleaned(topic: str, action: MaintenanceAction, found: Sequence[PartitionMaintenance]) -> None:
    print_table(
        ("partition", "records", "size", "freed", "result"),
        [
            (
                str(one.partition),
                f"{one.records_before:,} → {one.records_after:,}",
                f"{size(one.bytes_before)} → {size(one.bytes_after)}",
                size(max(one.bytes_before - one.bytes_after, 0)),
                _result(one),
            )
            for one in found
        ],
        numbers=("partition", "records", "size", "freed"),
    )
    records = sum(one.records_before - one.records_after for one in found)
    freed = sum(max(one.bytes_before - one.bytes_after, 0) for one in found)
    done = "compacted" if action is MaintenanceAction.COMPACT else "retained"
    _print_verdict(
        f"{topic}: {many(records, 'record')} went, {size(freed)} freed.",
        [one for one in found if one.state is not MaintenanceState.DONE],
        f"of {many(len(found), 'partition')} not {done}",
    )


def _print_verified(topic: str, found: Sequence[PartitionMaintenance]) -> None:
    print_table(
        ("partition", "records", "size", "damaged", "result"),
        [
            (
                str(one.partition),
                f"{one.records_before:,}",
                size(one.bytes_before),
                ranges_text(one.damaged, one.damaged_count),
                _result(one),
            )
            for one in found
        ],
        numbers=("partition", "records", "size"),
    )
    _print_verdict(
        f"{topic}: all sound.",
        [one for one in found if one.damaged_count or one.state is not MaintenanceState.DONE],
        f"of {many(len(found), 'partition')} damaged or not verified",
    )


def _print_verdict(good: str, bad: Sequence[PartitionMaintenance], words: str) -> None:
    click.secho(f"{len(bad)} {words}." if bad else good, fg="red" if bad else "green")


def _result(one: PartitionMaintenance) -> str:
    if one.state is MaintenanceState.DONE:
        return "damaged" if one.damaged_count else "done"
    return f"failed: {one.failure or 'unknown'}"


def _fields(one: PartitionMaintenance) -> dict[str, Any]:
    return {
        "partition": one.partition,
        "state": one.state.name.lower(),
        "records_before": one.records_before,
        "records_after": one.records_after,
        "bytes_before": one.bytes_before,
        "bytes_after": one.bytes_after,
        "damaged": ranges_fields(one.damaged),
        "damaged_count": one.damaged_count,
        "failure": one.failure,
    }
