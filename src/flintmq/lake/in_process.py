"""Runs a function on a few items in this process: what Spark's workers would do, where starting Spark costs more.

    results = run_in_process(items, function, on_progress=…, check=…, poll_s=…)

Invariant: one result for each item, in the order of the items; the first error ends it. The work is done in a thread
of its own, so that `check` is called meanwhile; what `check` raises ends it after the item under way, or leaves the
thread behind if that item takes too long. This module must not know Spark, tables or files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_CANCEL_S: Final = 5.0


def run_in_process(
    items: Sequence[Item],
    function: Callable[[Item], Result],
    *,
    on_progress: Callable[[int, int], None],
    check: Callable[[], None],
    poll_s: float,
) -> list[Result]:
    work = _Work(items, function)
    # A daemon: an item that waits for a broker does not keep a process that was asked to stop.
    thread = threading.Thread(target=work.run, name="lake-work", daemon=True)
    thread.start()
    try:
        while not work.ended.wait(poll_s):
            check()
            on_progress(len(work.results), len(items))
    finally:
        work.is_cancelled = True
        thread.join(_CANCEL_S)
    if work.error is not None:
        raise work.error
    on_progress(len(items), len(items))
    return work.results


class _Work(Generic[Item, Result]):
    def __init__(self, items: Sequence[Item], function: Callable[[Item], Result]) -> None:
        self.results: list[Result] = []
        self.error: BaseException | None = None
        self.ended = threading.Event()
        self.is_cancelled = False
        self._items = items
        self._function = function

    def run(self) -> None:
        try:
            for item in self._items:
                if self.is_cancelled:
                    return
                self.results.append(self._function(item))
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()
