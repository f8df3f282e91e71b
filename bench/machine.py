"""What Linux says of processes and of the machine: CPU, memory, load, cores.

Invariant: every figure is read from /proc at the moment of the call; nothing is cached but the length of
a tick. CPU is counted in ticks of 10 ms, so a measured span should cost the broker well over a second.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

# Positions in /proc/PID/stat after the closing parenthesis of the process name.
_PARENT: Final = 1
_CPU: Final = slice(11, 15)  # user and system, of itself and of children that have ended


def is_supported() -> bool:
    return os.path.exists("/proc/self/stat")


def family(pid: int) -> list[int]:
    """The process and all its living descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(int(name))):
            children.setdefault(int(fields[_PARENT]), []).append(int(name))
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += children.get(one, [])
    return found


def cpu_s(pid: int) -> float:
    """User and system time of a process and its descendants, of all their threads."""
    return sum(sum(map(int, _stat(one)[_CPU])) for one in family(pid)) / _TICKS_PER_S


def anonymous_bytes(pid: int) -> int:
    """Resident memory of a process and its descendants without mapped files, which are the page cache's."""
    total = 0
    for one in family(pid):
        try:
            with open(f"/proc/{one}/status") as lines:
                total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
        except OSError:  # ended since it was listed
            continue
    return total


def busy_s() -> float:
    """CPU time of everybody on the machine since it was started, other guests' stolen time included."""
    with open("/proc/stat") as lines:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, lines.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_S


def load() -> float:
    """The load average of the last minute."""
    return os.getloadavg()[0]


@dataclass(frozen=True, slots=True)
class Cores:
    """Which core the brokers run on and which the clients; without two of them nothing is pinned."""

    broker: frozenset[int]
    client: frozenset[int]

    @classmethod
    def available(cls) -> Cores:
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) < 2:
            return cls(frozenset(allowed), frozenset(allowed))
        return cls(frozenset(allowed[:1]), frozenset(allowed[1:2]))

    @property
    def are_separate(self) -> bool:
        return not self.broker & self.client


def description() -> str:
    """The machine in a line: processor, cores, memory, kernel, Python."""
    model = "unknown processor"
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{model}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def _stat(pid: int) -> list[str]:
    """The fields after the name, which may itself hold spaces; none if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []
