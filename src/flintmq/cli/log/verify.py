"""`flintmq log verify`."""

from __future__ import annotations

import os

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option
from flintmq.cli.common.exit_codes import REMOTE_CODES, CommandFailure, Exit, UsageFailure
from flintmq.cli.common.output import many, print_json, print_table, ranges_fields, ranges_text, size
from flintmq.cli.common.progress import Progress
from flintmq.cli.log.verification import VerifiedLog, logs_in, size_of, verify


@click.command(
    "verify",
    cls=Command,
    examples=(
        "flintmq log verify orders",
        "flintmq log verify flintmq-data",
        "flintmq log verify flintmq-data/orders-0/00000000000000000000.log --json",
    ),
    exit_codes={**REMOTE_CODES, Exit.FAILED: "something is damaged, or cannot be read"},
)
@click.argument("target", metavar="PATH|TOPIC")
@click.option("--topic", "is_topic", is_flag=True, help="It is a topic, though a file has that name too.")
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Of a topic only this partition; may be given several times.",
)
@bootstrap_option
@json_option
def command(target: str, is_topic: bool, partitions: tuple[int, ...], bootstrap: str, as_json: bool) -> None:
    """Check that what is stored is what was written.

    Every batch is read and its CRC is checked. Of a TOPIC the broker does it, and refuses from then on whatever it
    finds damaged. A PATH is a data folder, a partition's folder or a segment; it is read here, without a broker, or
    beside one that runs. Nothing is changed in either case. What a file holds is shown by flintmq dump-log.
    """
    if is_topic or not _is_path(target):
        from flintmq.cli.common.maintenance import carry_out
        from flintmq.protocol.maintenance import MaintenanceAction

        carry_out(MaintenanceAction.VERIFY, target, partitions, bootstrap=bootstrap, as_json=as_json)
        return
    if partitions:
        raise UsageFailure("--partition is for topics; name the partition's folder instead")
    found = _verify_path(target)
    if as_json:
        _print_json(target, found)
    else:
        _print(found)
    if any(log.damaged for log in found):
        raise SystemExit(Exit.FAILED)


def _is_path(target: str) -> bool:
    if os.path.exists(target):
        return True
    if os.sep in target or target.endswith(".log"):
        raise CommandFailure(f"there is no file or folder {target}")
    return False


def _verify_path(path: str) -> list[VerifiedLog]:
    logs = logs_in(path)
    if not logs:
        raise CommandFailure(
            f"{path} holds no segments of a log; if you mean the topic of that name, say --topic"
        )
    total, done, found = size_of(logs), 0, []
    with Progress() as progress:
        for at, (directory, bases) in enumerate(logs.items(), 1):
            words = f"verifying {os.path.basename(os.path.abspath(directory))} ({at} of {len(logs)})"

            def note(count: int, words: str = words) -> None:
                nonlocal done
                done += count
                progress.tell_bytes(words, done, total)

            try:
                verified = verify(directory, bases, is_whole=os.path.isdir(path), note=note)
            except OSError as error:
                raise CommandFailure(
                    f"{error.filename or directory} cannot be read: {error.strerror}"
                ) from None
            if verified is not None:
                found.append(verified)
    return found


def _print(found: list[VerifiedLog]) -> None:
    print_table(
        ("log", "segments", "records", "size", "damaged"),
        [
            (
                log.name,
                f"{log.segments:,}",
                f"{log.records:,}",
                size(log.size),
                ranges_text(log.damaged, len(log.damaged)),
            )
            for log in found
        ],
        numbers=("segments", "records", "size"),
    )
    bad = sum(bool(log.damaged) for log in found)
    verdict = f"{bad} damaged" if bad else "all sound"
    click.secho(f"{many(len(found), 'log')}, {verdict}.", fg="red" if bad else "green")


def _print_json(path: str, found: list[VerifiedLog]) -> None:
    print_json(
        {
            "path": path,
            "action": "verify",
            "logs": [
                {
                    "log": log.name,
                    "path": log.path,
                    "segments": log.segments,
                    "batches": log.batches,
                    "records": log.records,
                    "bytes": log.size,
                    "damaged": ranges_fields(log.damaged),
                }
                for log in found
            ],
        }
    )
