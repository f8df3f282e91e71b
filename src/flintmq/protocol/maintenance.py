"""The numbers of FlintMQ's own requests about the upkeep of topics, by name. Pure."""

from __future__ import annotations

from enum import IntEnum


class MaintenanceAction(IntEnum):
    """What MaintainTopic starts."""

    COMPACT = 0
    RETAIN = 1
    VERIFY = 2


class MaintenanceState(IntEnum):
    """How far a task is with a partition."""

    WAITING = 0
    RUNNING = 1
    DONE = 2
    FAILED = 3
