"""Passes of compaction in a process of their own, at the other end of two pipes."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator

from flintmq.storage.compaction.job import (
    CompactionFailure,
    CompactionJob,
    Event,
    GroupResult,
    decode_event,
    encode_job,
)

_MODULE = "flintmq.storage.compaction.worker"
_LINE_BYTES_MAX = 1 << 20
_STOP_S = 5.0


class CompactionProcess:
    """One process for each pass: it starts in a fraction of a second, and its memory is given back with it."""

    async def run(self, job: CompactionJob) -> AsyncGenerator[Event, None]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            _MODULE,
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            limit=_LINE_BYTES_MAX,
            env=_environment(),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(encode_job(job))
            await process.stdin.drain()
            while line := await process.stdout.readline():
                event = decode_event(line)
                yield event
                if isinstance(event, GroupResult):
                    process.stdin.write(b"\n")
                    await process.stdin.drain()
            code = await process.wait()
            if code:
                yield CompactionFailure(reason=f"the process that compacts ended with {code}")
        except (BrokenPipeError, ConnectionResetError):
            yield CompactionFailure(reason="the process that compacts died")
        finally:
            await _end(process)


def _environment() -> dict[str, str]:
    """Where this process found the package, whatever its working folder is; and hashes that nobody can foretell."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment.pop("PYTHONHASHSEED", None)
    return environment


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
        await asyncio.wait_for(process.wait(), _STOP_S)
