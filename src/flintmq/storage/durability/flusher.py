"""When a log's bytes reach stable storage: `flush.messages`, `flush.ms`, or the operating system's pleasure.

One flush at a time runs in a thread for each log; all that was appended meanwhile waits for the next one,
so that one fsync serves every producer that waits. A failed fsync is never retried: the kernel may have
dropped the pages and would report success the second time. The log goes offline instead. Only an index that
found no room on the disk, and a file for which no descriptor was left, are tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from flintmq.effects import Clock, Executor
from flintmq.errors import LogOffline, StorageError
from flintmq.storage.durability.flush import NO_DESCRIPTORS, Flush, NoSpace
from flintmq.storage.log import Log

logger: Final = logging.getLogger(__name__)

Done = Callable[[BaseException | None], object]


def _truncated(log: Log) -> StorageError:
    return StorageError(f"{log.name} was truncated before it was flushed.")


class Flusher:
    def __init__(self, log: Log, *, executor: Executor, clock: Clock, flushed: Callable[[], object]) -> None:
        self._log = log
        self._executor = executor
        self._clock = clock
        self._flushed = flushed
        self._running = False
        self._again = False
        self._short_of_space = False
        # Who waits for the flush that runs, and who for the one after it.
        self._waiting: list[Done] = []
        self._waiting_next: list[Done] = []

    def after_append(self) -> None:
        """Start a flush if `flush.messages` are waiting, or a segment was sealed. Called for every append.

        The latter, as in Kafka, whatever the settings: so what a crash leaves to be scanned, and the indexes
        that wait in memory, are those of about one segment.
        """
        log = self._log
        if log.sealed or log.end_offset - log.recovery_point >= log.config.flush_messages:
            self.flush()

    def flush_if_due(self, now_ms: int) -> None:
        """Start a flush if something has waited for `flush.ms`. Called from time to time."""
        log = self._log
        if (
            self._short_of_space
            or log.sealed
            or (log.unflushed and now_ms - log.last_flush_ms >= log.config.flush_ms)
        ):
            self.flush()

    def flush(self, done: Done | None = None) -> None:
        """`done` is called once all that was written by now is flushed, or with the reason why it is not."""
        if done is not None:
            self._waiting_next.append(done)
        if self._log.offline is not None:
            self._fail_waiting(LogOffline(self._log.offline))
            return
        if self._log.truncation is not None:
            self._fail_waiting(_truncated(self._log))
            return
        if self._running:
            self._again = True
            return
        try:
            work = self._log.prepare_flush()
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                self._retry_later(f"{error}.")
            else:
                self._log.go_offline(f"its files could not be opened for a flush: {error}")
                self._flushed()
            self._fail_waiting(error)
            return
        self._running = True
        self._waiting, self._waiting_next = self._waiting_next, []
        began = self._clock.monotonic()
        self._executor.submit(work.run, lambda _, error: self._done(work, error, began))

    def _done(self, work: Flush, error: BaseException | None, began: float) -> None:
        counters = self._log.counters
        counters.flushed(self._clock.monotonic() - began)
        counters.flush_failures += error is not None
        self._running = False
        self._short_of_space = False
        waiting, self._waiting = self._waiting, []
        if work.generation != self._log.generation and (error is None or isinstance(error, NoSpace)):
            # What it was to make durable may be gone.
            error = _truncated(self._log)
        elif error is None:
            self._log.flushed(work, self._clock.now_ms())
        elif isinstance(error, NoSpace):
            self._retry_later(str(error))
            self._fail_waiting(error, waiting)
            return
        else:
            self._log.go_offline(f"fsync failed: {error}")
        self._flushed()
        for done in waiting:
            done(error)
        if self._waiting_next:
            self._again = False
            self.flush()
        elif self._again:
            self._again = False
            self.after_append()

    def _fail_waiting(self, error: BaseException, waiting: Sequence[Done] = ()) -> None:
        """Call back with `error`: no flush will come."""
        late, self._waiting_next = self._waiting_next, []
        for done in (*waiting, *late):
            done(error)

    def _retry_later(self, why: str) -> None:
        self._short_of_space = True
        logger.error("%s is not flushed: %s Trying again when there is room.", self._log.name, why)
