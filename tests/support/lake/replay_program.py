"""A partition of a replay in a process of its own, which kills itself at a step if it is told to.

python replay_program.py STEP COUNT < task > result        STEP is a name in STEPS, or `none`

"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flintmq.lake.replay import task
from flintmq.lake.replay.task import replay_partition

STEPS = {
    "before the rows": (task._Replay, "_write", "before"),
    "between the rows and their offset": (task._Replay, "_commit_offset", "before"),
    "before the commit": (task._Replay, "_commit_offset", "after"),
    "after the commit": (task._Replay, "_write", "after"),
}


def dying(original: Callable[..., Any], when: str, count: int) -> Callable[..., Any]:
    left = [count]

    def run(*arguments: Any) -> Any:
        left[0] -= 1
        if when == "before" and not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments)
        if when == "after" and not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return run


def main() -> None:
    step, count = sys.argv[1], int(sys.argv[2])
    if step in STEPS:
        owner, name, when = STEPS[step]
        setattr(owner, name, dying(getattr(owner, name), when, count))
    # Every file's rows are a transaction.
    result = replay_partition(replace(pickle.load(sys.stdin.buffer), transaction_bytes=1))
    sys.stdout.buffer.write(pickle.dumps(result))


if __name__ == "__main__":
    main()
