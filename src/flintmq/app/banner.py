"""What a broker says to people when it starts: where it listens, where its data is, what recovery did.

The words alone: who writes them, and where to, is the caller's affair.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType

from flintmq import __version__
from flintmq.app.broker import StartupReport
from flintmq.compiled import is_compiled
from flintmq.settings import Listener
from flintmq.settings.listeners import LOOPBACK
from flintmq.storage.log_dir import CLEAN_SHUTDOWN, FORMAT_FILE
from flintmq.storage.recovery.log_loader import RecoveryReport

PATIENCE_S = 2.0


def addresses(listeners: Iterable[Listener]) -> list[str]:
    """`host:port` of each, as a client would write it; every interface is 0.0.0.0."""
    return [str(Listener(one.name, one.host or "0.0.0.0", one.port)).partition("://")[2] for one in listeners]  # nosec B104


def ready_line(started: StartupReport) -> str:
    """For programs that wait for the broker: one line that begins with `ready`, then every address."""
    return f"ready {' '.join(addresses(started.listeners))} in {started.took_ms:.0f} ms"


def banner(started: StartupReport, data_dir: str) -> list[str]:
    """For people."""
    partitions = "1 partition" if started.partitions == 1 else f"{started.partitions} partitions"
    rows = [
        ("listening", ", ".join(addresses(started.listeners))),
        ("data", f"{os.path.abspath(data_dir)} ({partitions})"),
        ("cluster", started.cluster_id),
    ]
    if started.http is not None:
        rows.append(("http", f"{started.http} (/metrics, /health/ready)"))
    if all(listener.host in LOOPBACK for listener in started.listeners):
        rows.append(("note", "only this machine can connect; --host 0.0.0.0 lets other machines in"))
    if not is_compiled():
        rows.append(
            ("note", "the core is not compiled and costs about twice the CPU; see docs/getting-started.md")
        )
    rows += [("recovery", words) for words in recovery_words([report for _, report in started.recovered])]
    rows.append(("stop", "Ctrl-C"))
    width = max(len(name) for name, _ in rows)
    return [f"FlintMQ {__version__}", *(f"  {name:<{width}}  {words}" for name, words in rows)]


def recovery_words(reports: Sequence[RecoveryReport]) -> list[str]:
    """Nothing if every log was as it was left."""
    scanned = sum(report.segments_scanned for report in reports)
    cut = sum(report.bytes_cut for report in reports)
    dropped = sum(report.segments_dropped for report in reports)
    rebuilt = sum(report.indexes_rebuilt for report in reports)
    refused = sum(len(report.quarantined) for report in reports)
    words = []
    if scanned:
        words.append(f"the last stop was not an orderly one: {_count(scanned, 'segment')} checked")
    if cut or dropped:
        torn = f"{_count(cut, 'byte')} that were never completely written cut off"
        words.append(torn + (f", {_count(dropped, 'segment')} dropped" if dropped else ""))
    if rebuilt:
        words.append(f"the indexes of {_count(rebuilt, 'segment')} rebuilt")
    if refused:
        words.append(f"{_count(refused, 'range')} of offsets damaged and refused to readers; see the log")
    return words


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


class StartWatch:
    """Says every few seconds that the start still goes on, and why it may take long. Quiet if it is short."""

    def __init__(self, data_dir: str, say: Callable[[str], object], patience_s: float = PATIENCE_S) -> None:
        directory = os.path.abspath(data_dir)
        unclean = os.path.exists(f"{directory}/{FORMAT_FILE}") and not os.path.exists(
            f"{directory}/{CLEAN_SHUTDOWN}"
        )
        self._words = f"checking the logs in {directory}" if unclean else f"opening the logs in {directory}"
        self._reason = ", because the last stop was not an orderly one" if unclean else ""
        self._say = say
        self._patience_s = patience_s
        self._over = threading.Event()
        self.progress: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """How many logs are open, and of how many."""

    def __enter__(self) -> StartWatch:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.over()

    def over(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        passed_s = 0.0
        while not self._over.wait(self._patience_s):
            passed_s += self._patience_s
            done, total = self.progress()
            counted = f"{done:,} of {total:,}, " if total else ""
            self._say(f"{self._words}{self._reason}: {counted}{passed_s:.0f} s so far")
