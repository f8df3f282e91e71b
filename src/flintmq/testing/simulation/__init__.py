"""A world made of memory and a seed: disk, clock, randomness, loop and threads that replay exactly.

Nothing here reads the real clock, touches the real disk or blocks; the same seed gives the same run.
Product code must not know whether it runs on this or on `effects.real`.
"""

from __future__ import annotations

from flintmq.testing.simulation.disk import SECTOR, SimulatedDisk, SimulatedFile
from flintmq.testing.simulation.loop import SimulatedClock, SimulatedExecutor, SimulatedLoop, SimulatedRandom
from flintmq.testing.simulation.subprocess import SimulatedSubprocess

__all__ = [
    "SECTOR",
    "SimulatedClock",
    "SimulatedDisk",
    "SimulatedExecutor",
    "SimulatedFile",
    "SimulatedLoop",
    "SimulatedRandom",
    "SimulatedSubprocess",
]
