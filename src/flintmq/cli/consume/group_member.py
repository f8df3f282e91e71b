"""`flintmq consume --group`: the records that a group gives this member, until it is told to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import NoReturn

from flintmq.cli.common.output import note, warn
from flintmq.client.cluster import ClusterClient
from flintmq.client.consumer import Gap
from flintmq.client.group_consumer import GroupConsumer, Offsets
from flintmq.client.metadata import TopicMetadata
from flintmq.effects.signals import SignalHandler
from flintmq.errors import FlintError
from flintmq.records.record import Record

Print = Callable[[Sequence[tuple[int, Record]]], object]


def read_as_member(
    client: ClusterClient,
    topic: TopicMetadata,
    group: str,
    *,
    begin: Offsets,
    ends: Offsets | None,
    limit: int | None,
    on_gap: Gap,
    read_committed: bool,
    show: Print,
) -> None:
    """Print, then commit what was printed; leave the group at the end, however it comes."""

    def assigned(partitions: list[int]) -> None:
        named = ", ".join(map(str, partitions)) or "none, for the group has enough members without this one"
        note(f"{group}: reading {topic.name}, partitions: {named}")

    def lost() -> None:
        warn(f"{group}: the group went on without this member; what it read last may be read again")

    consumer = GroupConsumer(
        client,
        topic,
        group,
        begin=begin,
        ends=ends,
        on_gap=on_gap,
        on_assigned=assigned,
        on_lost=lost,
        read_committed=read_committed,
    )
    # A member that its supervisor stops leaves its group too, as after Ctrl-C.
    with SignalHandler(_interrupt, (signal.SIGTERM,)):
        try:
            _read(consumer, limit, show)
        except BaseException:
            # Whatever it was, the others of the group should not have to wait for this member's session to end.
            _close(consumer, interrupted=True)
            raise
        _close(consumer, interrupted=False)


def _read(consumer: GroupConsumer, limit: int | None, show: Print) -> None:
    left = limit
    while True:
        records = consumer.poll()
        if left is not None:
            records = records[:left]
            left -= len(records)
        show(records)
        consumer.delivered(len(records) if left == 0 else None)
        if left == 0 or consumer.is_at_end:
            return


def _close(consumer: GroupConsumer, *, interrupted: bool) -> None:
    try:
        consumer.close(interrupted=interrupted)
    except FlintError as error:
        warn(f"what was read last could not be committed, and may be read again: {error}")


def _interrupt(number: signal.Signals) -> NoReturn:
    raise KeyboardInterrupt
