"""When a log's bytes reach stable storage: `flush.messages`, `flush.ms`, or the operating system's pleasure.

One flush at a time runs in a thread for each log; all that was appended meanwhile waits for the next one,
so that one fsync serves every producer that waits. A failed fsync is never retried: the kernel may have
dropped the pages and would report success the second time. The log goes offline instead. Only an index that
found no room on the disk, and a file for which no descriptor was left, are tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from flintmq.effects import Clock, Executor
from flintmq.storage.log import Log
from flintmq.storage.syncing import NO_DESCRIPTORS, Flush, NoSpace

logger = logging.getLogger(__name__)


class Flusher:
    def __init__(self, log: Log, *, executor: Executor, clock: Clock, flushed: Callable[[], object]) -> None:
        self._log = log
        self._executor = executor
        self._clock = clock
        self._flushed = flushed
        self._running = False
        self._again = False
        self._short_of_space = False

    def after_append(self) -> None:
        """Called for every append: starts a flush if `flush.messages` are waiting, or a segment was sealed.

        The latter, as in Kafka, whatever the settings: so what a crash leaves to be scanned, and the indexes
        that wait in memory, are those of about one segment.
        """
        log = self._log
        if log.sealed or log.end_offset - log.recovery_point >= log.config.flush_messages:
            self.flush()

    def after_time(self, now_ms: int) -> None:
        """Called now and then: starts a flush if something has waited for `flush.ms`."""
        log = self._log
        if (
            self._short_of_space
            or log.sealed
            or (log.unflushed and now_ms - log.last_flush_ms >= log.config.flush_ms)
        ):
            self.flush()

    def flush(self) -> None:
        if self._log.offline is not None:
            return
        if self._running:
            self._again = True
            return
        try:
            work = self._log.prepare_flush()
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                self._wait(f"{error}.")
                return
            self._log.go_offline(f"its files could not be opened for a flush: {error}")
            self._flushed()
            return
        self._running = True
        began = self._clock.monotonic()
        self._executor.submit(work.run, lambda _, error: self._done(work, error, began))

    def _done(self, work: Flush, error: BaseException | None, began: float) -> None:
        counters = self._log.counters
        counters.flushed(self._clock.monotonic() - began)
        counters.flush_failures += error is not None
        self._running = False
        self._short_of_space = False
        if error is None:
            self._log.flushed(work, self._clock.now_ms())
        elif isinstance(error, NoSpace):
            self._wait(str(error))
            return
        else:
            self._log.go_offline(f"fsync failed: {error}")
        self._flushed()
        if self._again:
            self._again = False
            self.after_append()

    def _wait(self, why: str) -> None:
        self._short_of_space = True
        logger.error("%s is not flushed: %s Trying again when there is room.", self._log.name, why)
