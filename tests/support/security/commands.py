"""The `flintmq` command in a process of its own, with settings from its environment."""

from __future__ import annotations

import subprocess
import sys

from support.broker.broker_process import clean_environment

_TIMEOUT_S = 60


def flintmq(
    *args: str, env: dict[str, str] | None = None, text: str = "", fails: bool = False
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "flintmq", *args],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
        env=clean_environment(env),
    )
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done
