"""The real processes beside the broker: Python modules at the other end of two pipes."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process

from flintmq.effects import Buffer

_LINE_BYTES_MAX = 1 << 20
_STOP_S = 5.0


class SystemProcess:
    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout

    async def write(self, data: Buffer) -> None:
        self._stdin.write(data)
        await self._stdin.drain()

    async def read_line(self) -> bytes:
        return await self._stdout.readline()

    async def wait(self) -> int:
        return await self._process.wait()

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await asyncio.wait_for(self._process.wait(), _STOP_S)


class SystemSubprocess:
    async def start(self, module: str) -> SystemProcess:
        return SystemProcess(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                limit=_LINE_BYTES_MAX,
                env=_environment(),
            )
        )


def _environment() -> dict[str, str]:
    """Return where this process found the package, whatever its working directory is; hashes stay unpredictable."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment.pop("PYTHONHASHSEED", None)
    return environment
