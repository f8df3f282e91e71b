"""The real `flintmq` command in a process of its own, and how it ended."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from support.broker.broker_process import clean_environment

TIMEOUT_S = 60


class Ran:
    """How a command ended."""

    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self.code = done.returncode
        self.out = done.stdout.decode()
        self.error = done.stderr.decode()

    def __repr__(self) -> str:
        return f"code {self.code}\n--- out\n{self.out}\n--- error\n{self.error}"

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Flintmq(Protocol):
    def __call__(
        self, *args: str, stdin: bytes = b"", code: int = 0, env: Mapping[str, str] | None = None
    ) -> Ran: ...


def run(*args: str, stdin: bytes = b"", code: int = 0, env: Mapping[str, str] | None = None) -> Ran:
    """Runs `flintmq` and checks its exit code; a traceback is never right."""
    done = subprocess.run(
        [sys.executable, "-m", "flintmq", *args],
        input=stdin,
        capture_output=True,
        env=clean_environment(env),
        timeout=TIMEOUT_S,
    )
    ran = Ran(done)
    assert ran.code == code, ran
    assert "Traceback" not in ran.error, ran
    return ran
