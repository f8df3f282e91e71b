"""Consumer groups in a simulated cluster: members that come, go and die, and members that process what they read.

A plain group reads and commits offsets. A processing group makes one record from each that it reads, and commits its
offsets in the transaction of those records.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from flintmq.errors import RequestError
from flintmq.testing.simulation.client import OutcomeUnknown, WorldClient, WorldReader
from flintmq.testing.simulation.group_client import WorldGroupMember
from flintmq.testing.simulation.transactional_client import TransactionalWorldProducer
from support.histories.history import (
    Assign,
    CommitOffsets,
    End,
    FinalOffsets,
    GaveUp,
    Outcome,
    Place,
    Poll,
    Record,
)
from support.simulation.workload import PATIENCE_S, Workload, read_record

_LEAVES, _DIES = 0.02, 0.02


class _Reading:
    """What one member reads between two rebalances."""

    def __init__(
        self, workload: Workload, process: str, member: WorldGroupMember, *, committed_only: bool
    ) -> None:
        self._workload = workload
        self._process = process
        self._member = member
        self._committed_only = committed_only
        self.reader: WorldReader

    async def begin(self, client: WorldClient) -> None:
        """Go to what the group has committed."""
        committed = await self._member.committed()
        positions = {place: max(0, offset) for place, offset in committed.items()}
        self.reader = WorldReader(client, positions, committed_only=self._committed_only)
        self._workload.recorder.note(
            Assign(
                process=self._process,
                positions=dict(positions),
                committed_only=self._committed_only,
                group=self._member.group,
            )
        )

    async def poll(self) -> list[Record]:
        poll = self._workload.recorder.begin(Poll(process=self._process))
        for place in self._member.assigned:
            poll.records += [
                read_record(place, record) for record in await self.reader.poll(*place, max_wait_ms=20)
            ]
        self._workload.recorder.end(poll)
        return poll.records


class GroupWorkload:
    def __init__(self, workload: Workload, group: str, places: Sequence[Place]) -> None:
        self._workload = workload
        self._group = group
        self._places = places

    async def run(self, members: int, *, target: Place | None = None) -> None:
        """Let members read until the work is over; with a `target`, they process what they read."""
        await asyncio.gather(*(self._live(f"{self._group} {index}", target) for index in range(members)))

    async def _live(self, name: str, target: Place | None) -> None:
        """Be one member after the other."""
        workload = self._workload
        client = WorldClient(workload.world, name, patience_s=PATIENCE_S)
        producer = None if target is None else TransactionalWorldProducer(client, name)
        for instance in itertools.count(1):
            member = WorldGroupMember(client, self._group, self._places)
            process = f"{name}#{instance}"
            try:
                if producer is not None:
                    await producer.open()
                await self._work(client, member, process, producer, target)
            except (OutcomeUnknown, RequestError) as error:
                workload.recorder.note(GaveUp(process=process, why=str(error)))
            if workload.is_over():
                if producer is not None:
                    # Whatever was left open is ended.
                    await producer.open()
                return

    async def _work(
        self,
        client: WorldClient,
        member: WorldGroupMember,
        process: str,
        producer: TransactionalWorldProducer | None,
        target: Place | None,
    ) -> None:
        workload = self._workload
        reading = _Reading(workload, process, member, committed_only=producer is not None)
        needs_join, count = True, 0
        while not workload.is_over():
            if needs_join:
                await member.join()
                await reading.begin(client)
                needs_join = False
            records = await reading.poll()
            try:
                if producer is not None and target is not None and records:
                    count += 1
                    await self._process(
                        client, member, process, producer, target, records, f"{process}.{count}", reading
                    )
                elif producer is None and records:
                    await self._commit(member, process, reading)
                await member.heartbeat()
            except RequestError:
                if producer is not None:
                    await producer.open()
                needs_join = True
            fate = client.random.random()
            if fate < _DIES:
                return
            if fate < _DIES + _LEAVES:
                break
            await asyncio.sleep(client.random.uniform(0.02, 0.2))
        if member.member_id:
            await member.leave()

    async def _commit(self, member: WorldGroupMember, process: str, reading: _Reading) -> None:
        recorder = self._workload.recorder
        commit = recorder.begin(
            CommitOffsets(process=process, group=self._group, offsets=dict(reading.reader.positions))
        )
        try:
            await member.commit(commit.offsets)
        except RequestError:
            recorder.end(commit, Outcome.INFO if member.may_have_committed else Outcome.FAIL)
            raise
        recorder.end(commit)

    async def _process(
        self,
        client: WorldClient,
        member: WorldGroupMember,
        process: str,
        producer: TransactionalWorldProducer,
        target: Place,
        records: Sequence[Record],
        name: str,
        reading: _Reading,
    ) -> None:
        """Write one record for each that was read, with the offsets; RequestError if that is not committed."""
        workload = self._workload
        sources = [record.value for record in records]
        if not await workload.send(client, producer, process, target, name, sources):
            await producer.open()
            await reading.begin(client)
            return
        offsets = dict(reading.reader.positions)
        await producer.commit_offsets(member, offsets)
        commits = client.random.random() < 0.85
        end = workload.recorder.begin(
            End(process=process, transaction=name, commits=commits, group=self._group, offsets=offsets)
        )
        await producer.end(commits=commits)
        workload.recorder.end(end)
        if not commits:
            await reading.begin(client)

    async def read_offsets(self) -> None:
        """Note what the group has committed in the end."""
        client = WorldClient(self._workload.world, f"final {self._group}", patience_s=PATIENCE_S)
        offsets = await WorldGroupMember(client, self._group, self._places).committed(self._places)
        self._workload.recorder.note(FinalOffsets(process="final", group=self._group, offsets=offsets))
