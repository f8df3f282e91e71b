"""Where the broker spends its time: samples of every thread's stack, a few hundred a second (`flint.profile`).

Each sample weighs as much processor time as its thread used since the one before, where the system tells that,
so that waiting weighs nothing; elsewhere it weighs the time that passed. The profiler is a thread of its own
and can be asked for its files at any time. It knows stacks, not what they mean.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import Counter
from types import CodeType, FrameType

from flintmq.app.observability.flame_graph import draw
from flintmq.compiled import is_compiled

logger = logging.getLogger(__name__)

INTERVAL_S = 0.005
FOLDED, GRAPH = "profile.folded", "profile.svg"
_STACKS_MAX = 50_000
_DEPTH_MAX = 100

Stack = tuple[str, ...]


class Profiler:
    def __init__(self, directory: str, *, interval_s: float = INTERVAL_S) -> None:
        self._directory = directory
        self._interval_s = interval_s
        self._weights: Counter[Stack] = Counter()
        """Microseconds, by the stack from the outermost function in."""
        self._used: dict[int, int] = {}
        self._names: dict[CodeType, str] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flintmq-profiler", daemon=True)

    def start(self) -> None:
        self._thread.start()
        logger.info(
            "profiling: %s is written at the stop and on SIGUSR2", os.path.join(self._directory, GRAPH)
        )

    def stop(self) -> None:
        """Take no more samples and write the files."""
        self._over.set()
        self._thread.join()
        self.write()

    def write_soon(self) -> None:
        """Write the files now, without keeping whoever asks."""
        self._wanted.set()

    def write(self) -> None:
        """What there is so far, in place of what was written before."""
        with self._lock:
            weights = dict(self._weights)
        folded = "".join(f"{';'.join(stack)} {weight}\n" for stack, weight in sorted(weights.items()))
        for name, text in ((FOLDED, folded), (GRAPH, draw(weights, title=_title()))):
            path = os.path.join(self._directory, name)
            try:
                with open(path + ".tmp", "w", encoding="utf-8") as file:
                    file.write(text)
                os.replace(path + ".tmp", path)
            except OSError as error:
                logger.error("the profile could not be written: %s", error)
                return
        logger.info("wrote the profile to %s", os.path.join(self._directory, GRAPH))

    def _run(self) -> None:
        while not self._over.wait(self._interval_s):
            self._sample()
            if self._wanted.is_set():
                self._wanted.clear()
                self.write()

    def _sample(self) -> None:
        own = threading.get_ident()
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        with self._lock:
            for ident, frame in sys._current_frames().items():
                if ident == own or ident not in names:
                    continue
                weight = self._weight(ident)
                if weight:
                    stack = (names[ident], *self._stack(frame))
                    if stack in self._weights or len(self._weights) < _STACKS_MAX:
                        self._weights[stack] += weight

    def _weight(self, ident: int) -> int:
        """Microseconds since this thread was last looked at."""
        try:
            clock = time.pthread_getcpuclockid(ident)
            now = time.clock_gettime_ns(clock)
        except (AttributeError, OSError):
            return int(self._interval_s * 1_000_000)
        before = self._used.get(ident, now)
        self._used[ident] = now
        return (now - before) // 1000

    def _stack(self, frame: FrameType | None) -> Stack:
        functions: list[str] = []
        while frame is not None and len(functions) < _DEPTH_MAX:
            functions.append(self._name(frame.f_code, frame.f_globals.get("__name__", "?")))
            frame = frame.f_back
        functions.reverse()
        return tuple(functions)

    def _name(self, code: CodeType, module: str) -> str:
        name = self._names.get(code)
        if name is None:
            # A semicolon would end the function in the folded text.
            name = self._names[code] = f"{module}.{code.co_qualname}".replace(";", ",").replace(" ", "_")
        return name


def _title() -> str:
    title = "FlintMQ: processor time"
    return f"{title} (without compiled functions, which count for their callers)" if is_compiled() else title
