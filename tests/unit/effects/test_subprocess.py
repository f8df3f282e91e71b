"""Real child processes."""

from __future__ import annotations

import asyncio
import signal

import pytest

from flintmq.app.compaction_process import WORKER_MODULE
from flintmq.effects import ChildProcess, Subprocess
from flintmq.effects.subprocess import SystemSubprocess


def test_a_child_reads_lines_writes_lines_and_ends() -> None:
    async def scenario() -> None:
        subprocess: Subprocess = SystemSubprocess()
        child = await subprocess.start(WORKER_MODULE)
        await child.write(
            b'{"directory":"/no/such/directory","segments":[],"first_dirty_offset":0,"end_offset":0,"now_ms":0,'
            b'"delete_retention_ms":0,"segment_bytes":1,"segment_index_bytes":1,"index_interval_bytes":1,'
            b'"dedupe_bytes":1024}\n'
        )
        assert b'"error"' in await child.read_line()
        assert await child.read_line() == b""
        assert await child.wait() == 0
        await child.kill()

    asyncio.run(scenario())


def test_a_child_that_is_killed_has_ended() -> None:
    async def scenario() -> None:
        child = await SystemSubprocess().start(WORKER_MODULE)
        await child.kill()
        assert await child.wait() == -signal.SIGKILL
        assert await child.read_line() == b""
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            await _write_much(child)

    asyncio.run(scenario())


async def _write_much(child: ChildProcess) -> None:
    """More than a pipe holds."""
    for _ in range(100):
        await child.write(b"\n" * 65_536)
