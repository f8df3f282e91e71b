"""The CPU time of a process and all that it starts, by program, ended processes included.

    with Family(os.getpid()) as family:
        before = family.cpu_s()
        ...
        family.cpu_s()["java"] - before["java"]

The kernel adds an ended child to its parent only if the parent waits for it. Spark's Python daemon does not: what its
workers had spent would be gone with them. So a thread looks at all of them ten times a second and remembers what each
had spent when it was last seen. What a process spends after that is lost, a twentieth of a second of its life on
average; what the looking itself spends is left out.
"""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType
from typing import Final, NamedTuple

LOOKING: Final = "looking"

_LOOK_S: Final = 0.1
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

# Positions in /proc/PID/stat after the closing parenthesis of the process name.
_PARENT: Final = 1
_OWN_CPU: Final = slice(11, 13)
_STARTED: Final = 19


class _Seen(NamedTuple):
    program: str
    ticks: int


class Family:
    def __init__(self, pid: int, *, without: frozenset[int] = frozenset()) -> None:
        """`without` are members that are left out, with all that they start."""
        self._pid = pid
        self._without = without
        # By process id and start, for ids are used again.
        self._seen: dict[tuple[int, str], _Seen] = {}
        self._looking_s = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="family", daemon=True)

    def __enter__(self) -> Family:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def cpu_s(self) -> dict[str, float]:
        """Seconds so far, of every program that was ever seen; what this class spends is taken off, as LOOKING."""
        with self._lock:
            self._look()
            spent = {LOOKING: -self._looking_s}
            for one in self._seen.values():
                spent[one.program] = spent.get(one.program, 0.0) + one.ticks / _TICKS_PER_S
        return spent

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_S):
            with self._lock:
                self._look()

    def _look(self) -> None:
        began = time.thread_time()
        children: dict[int, list[int]] = {}
        stats: dict[int, tuple[str, list[str]]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and (stat := _stat(int(name))):
                stats[int(name)] = stat
                children.setdefault(int(stat[1][_PARENT]), []).append(int(name))
        waiting = [self._pid]
        while waiting:
            pid = waiting.pop()
            if pid in self._without or pid not in stats:
                continue
            program, fields = stats[pid]
            self._seen[pid, fields[_STARTED]] = _Seen(program, sum(map(int, fields[_OWN_CPU])))
            waiting += children.get(pid, [])
        self._looking_s += time.thread_time() - began


def _stat(pid: int) -> tuple[str, list[str]] | None:
    """The program's name, and the fields behind it; None if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            head, _, fields = file.read().rpartition(")")
    except OSError:
        return None
    return head.partition("(")[2], fields.split()
