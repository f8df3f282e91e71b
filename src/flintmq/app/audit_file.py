"""The file of the audit log, written by a thread: JSON lines, rotated by size.

Events that are queued are written together. A write that fails is reported in the broker's log and counted; the file
is opened again with the next events.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
import time
from typing import Final

from flintmq.effects import Clock
from flintmq.errors import ConfigurationError
from flintmq.security.audit import AuditEvent, AuditLog
from flintmq.settings import BrokerConfig
from flintmq.settings.broker.audit import ALL, DENIALS

logger = logging.getLogger(__name__)

QUEUED_MAX: Final = 10_000
_BATCH_MAX: Final = 1000
_STOP_S: Final = 5.0


class AuditFile:
    def __init__(self, path: str, *, bytes_max: int, count: int, queued_max: int = QUEUED_MAX) -> None:
        """Open the file and start the thread; ConfigurationError if the file cannot be written."""
        self._path = os.path.abspath(path)
        self._bytes_max = bytes_max
        self._count = count
        self._events: queue.Queue[AuditEvent | None] = queue.Queue(queued_max)
        self.lost = 0
        """Events that could not be written to the disk."""
        self._fd = -1
        self._size = 0
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._open()
        except OSError as error:
            raise ConfigurationError(
                f"the audit log {path} (flint.audit.log.file) cannot be written: {error.strerror}"
            ) from None
        self._thread = threading.Thread(target=self._run, name="audit-log", daemon=True)
        self._thread.start()

    def put(self, event: AuditEvent) -> bool:
        """Queue an event; False if the queue is full. Never waits."""
        try:
            self._events.put_nowait(event)
        except queue.Full:
            return False
        return True

    def stop(self) -> None:
        """Write what is queued, and close the file; not for longer than a few seconds."""
        try:
            self._events.put(None, timeout=_STOP_S)
        except queue.Full:
            return
        self._thread.join(_STOP_S)

    # ---- the thread

    def _run(self) -> None:
        is_over = False
        while not is_over:
            events = [self._events.get()]
            while len(events) < _BATCH_MAX:
                try:
                    events.append(self._events.get_nowait())
                except queue.Empty:
                    break
            is_over = None in events
            lines = [encode_event(event) for event in events if event is not None]
            try:
                self._write(lines)
            except OSError as error:
                self._close()
                logger.error("the audit log %s cannot be written: %s", self._path, error.strerror)
        self._close()

    def _write(self, lines: list[bytes]) -> None:
        """Write lines, each to one file as a whole."""
        at = 0
        try:
            while at < len(lines):
                if self._fd < 0:
                    self._open()
                if self._size and self._size + len(lines[at]) > self._bytes_max:
                    self._rotate()
                end, size = at + 1, len(lines[at])
                while end < len(lines) and self._size + size + len(lines[end]) <= self._bytes_max:
                    size += len(lines[end])
                    end += 1
                self._write_all(b"".join(lines[at:end]))
                at = end
        finally:
            self.lost += len(lines) - at

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            count = os.write(self._fd, rest)
            self._size += count
            rest = rest[count:]

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size
        # A crash or a full disk may have left half a line.
        if self._size and os.pread(self._fd, 1, self._size - 1) != b"\n":
            self._write_all(b"\n")

    def _rotate(self) -> None:
        self._close()
        for number in range(self._count - 2, 0, -1):
            if os.path.exists(f"{self._path}.{number}"):
                os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
        os.replace(self._path, f"{self._path}.1")
        self._open()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def encode_event(event: AuditEvent) -> bytes:
    now_ms = event["time"]
    assert isinstance(now_ms, int)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ms // 1000))
    # ASCII only: whatever a client put into a name, a line is one line.
    return json.dumps({**event, "time": f"{moment}.{now_ms % 1000:03d}Z"}).encode("ascii") + b"\n"


def open_audit_log(config: BrokerConfig, clock: Clock) -> tuple[AuditLog, AuditFile] | None:
    """Return the audit log and its file; None if there is none."""
    if not config.flint_audit_log_file:
        return None
    file = AuditFile(
        config.flint_audit_log_file,
        bytes_max=config.flint_audit_log_file_max_bytes,
        count=config.flint_audit_log_file_count,
    )
    events = config.flint_audit_log_events
    log = AuditLog(
        clock=clock,
        write=file.put,
        rate_max=config.flint_audit_log_rate_max,
        logs_changes=events != DENIALS,
        logs_allowed=events == ALL,
    )
    return log, file
