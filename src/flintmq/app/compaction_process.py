"""Passes of compaction in a process of their own, at the other end of two pipes."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from flintmq.effects import Subprocess
from flintmq.storage.compaction.job import (
    CompactionFailure,
    CompactionJob,
    Event,
    GroupResult,
    decode_event,
    encode_job,
)

WORKER_MODULE = "flintmq.storage.compaction.worker"


class CompactionProcess:
    """One process for each pass: it starts in a fraction of a second, and its memory is given back with it."""

    def __init__(self, subprocess: Subprocess) -> None:
        self._subprocess = subprocess

    async def run(self, job: CompactionJob) -> AsyncGenerator[Event, None]:
        process = await self._subprocess.start(WORKER_MODULE)
        try:
            await process.write(encode_job(job))
            while line := await process.read_line():
                event = decode_event(line)
                yield event
                if isinstance(event, GroupResult):
                    await process.write(b"\n")
            code = await process.wait()
            if code:
                yield CompactionFailure(reason=f"the process that compacts ended with {code}")
        except (BrokenPipeError, ConnectionResetError):
            yield CompactionFailure(reason="the process that compacts died")
        finally:
            await process.kill()
