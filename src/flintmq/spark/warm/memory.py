"""How much memory a process and its descendants have, of the JVM that a server starts and of the JVM's workers."""

from __future__ import annotations

import os
import subprocess

_ASK_TIMEOUT_S = 10.0


def tree_memory_bytes(pid: int) -> int | None:
    """Return the resident memory, pages that several share counted for each; None if the system does not tell."""
    found = _processes()
    if found is None or pid not in found:
        return None
    children: dict[int, list[int]] = {}
    for one, (parent, _) in found.items():
        children.setdefault(parent, []).append(one)
    total, left, seen = 0, [pid], set()
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            total += found[one][1]
            left += children.get(one, ())
    return total


def _processes() -> dict[int, tuple[int, int]] | None:
    """Parent and resident bytes of every process."""
    try:
        return _from_proc() if os.path.isdir("/proc/self") else _from_ps()
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _from_proc() -> dict[int, tuple[int, int]]:
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name of the program is in parentheses and may hold anything.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        found[int(name)] = int(fields[1]), int(fields[21]) * page_bytes
    return found


def _from_ps() -> dict[int, tuple[int, int]]:
    done = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,rss="],
        capture_output=True,
        text=True,
        check=True,
        timeout=_ASK_TIMEOUT_S,
    )
    rows = (line.split() for line in done.stdout.splitlines())
    return {int(pid): (int(parent), int(kib) * 1024) for pid, parent, kib in rows}
