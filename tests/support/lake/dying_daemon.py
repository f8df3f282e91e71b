"""Spark's daemon of Python workers, one of which dies as by `kill -9` at a step of one of the programs, once.

Which step, and a file that is made by the one that dies, are in the environment.
"""

from __future__ import annotations

import os

from pyspark.daemon import manager

from support.lake import operation_program, sync_program
from support.lake.sync_program import STEP_VARIABLE, dying

STEPS = {**sync_program.WORKER_STEPS, **operation_program.WORKER_STEPS}


def is_first(marker: str) -> bool:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


if __name__ == "__main__":
    step, _, marker = os.environ[STEP_VARIABLE].partition(" ")
    dying(STEPS[step], lambda: is_first(marker))
    manager()
