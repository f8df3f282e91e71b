"""The broker's end of the pipes to a process that compacts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from flintmq.app.compaction_process import CompactionProcess
from flintmq.effects import Buffer
from flintmq.storage.compaction.job import (
    CompactionFailure,
    CompactionJob,
    CompactionProgress,
    Event,
    GroupResult,
    decode_job,
    encode_event,
)

_JOB = CompactionJob(
    directory="d",
    segments=(),
    first_dirty_offset=0,
    end_offset=0,
    now_ms=0,
    delete_retention_ms=0,
    segment_bytes=1,
    segment_index_bytes=1,
    index_interval_bytes=1,
    dedupe_bytes=1,
)
_PROGRESS = CompactionProgress(phase="keys", bytes_done=1, bytes_total=2)
_GROUP = GroupResult(
    bases=(0,),
    size=0,
    first_timestamp=0,
    max_timestamp=0,
    max_timestamp_offset=0,
    index_bytes=0,
    last_offset=-1,
    has_transaction_index=False,
    bytes_before=0,
    records_before=0,
    records_after=0,
)


class ScriptedChild:
    """Writes these events and ends; each group needs a line before it goes on."""

    def __init__(self, events: Sequence[Event], *, code: int = 0, breaks_after: int = 100) -> None:
        self._lines = [encode_event(event) for event in events]
        self._code = code
        self._writes_left = breaks_after
        self.written: list[bytes] = []
        self.was_killed = False

    async def start(self, module: str) -> ScriptedChild:
        return self

    async def write(self, data: Buffer) -> None:
        if not self._writes_left:
            raise BrokenPipeError
        self._writes_left -= 1
        self.written.append(bytes(data))

    async def read_line(self) -> bytes:
        return self._lines.pop(0) if self._lines else b""

    async def wait(self) -> int:
        return self._code

    async def kill(self) -> None:
        self.was_killed = True


def events_of(child: ScriptedChild) -> list[Event]:
    async def collect() -> list[Event]:
        return [event async for event in CompactionProcess(child).run(_JOB)]

    return asyncio.run(collect())


def test_a_job_goes_in_and_events_come_out() -> None:
    child = ScriptedChild([_PROGRESS, _GROUP, _PROGRESS, _GROUP])
    assert events_of(child) == [_PROGRESS, _GROUP, _PROGRESS, _GROUP]
    assert decode_job(child.written[0]) == _JOB
    assert child.written[1:] == [b"\n", b"\n"], "one line after each group"
    assert child.was_killed


def test_a_child_that_ends_with_an_error_has_failed() -> None:
    found = events_of(ScriptedChild([_PROGRESS], code=-9))
    assert found == [_PROGRESS, CompactionFailure(reason="the process that compacts ended with -9")]


def test_a_child_that_breaks_its_pipe_has_died() -> None:
    child = ScriptedChild([_GROUP, _PROGRESS], breaks_after=1)
    assert events_of(child) == [_GROUP, CompactionFailure(reason="the process that compacts died")]
    assert child.was_killed
