"""Where log lines go, and how they look: for people on standard error, as JSON in a file.

Invariant: one event is one line, whatever a client put into a name; lines of one kind are bounded in number,
so that no flood fills a disk; and the loop never waits for the disk that holds the log file.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO

from flintmq.settings import BrokerConfig

REPEATED_MAX = 50
REPEATED_WINDOW_S = 10.0
_KINDS_MAX = 1000
_QUEUED_MAX = 10_000

_COLOURS = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}
# What a terminal would obey, and what would look like a line of ours.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    10: "\\n",
    13: "\\r",
    9: " ",
}
_OWN_FIELDS = frozenset((*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"))


class TextFormatter(logging.Formatter):
    """For people."""

    def __init__(self, *, colour: bool = False) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
        self._colour = colour

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = record.message.translate(_CONTROLS)
        line = super().formatMessage(record)
        colour = _COLOURS.get(record.levelname) if self._colour else None
        return f"\x1b[{colour}m{line}\x1b[0m" if colour else line


class JsonFormatter(logging.Formatter):
    """For programs: time, level, logger, message, and whatever else the line was given."""

    def format(self, record: logging.LogRecord) -> str:
        seconds, ms = int(record.created), int(record.msecs)
        fields: dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{ms:03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in record.__dict__.items() if name not in _OWN_FIELDS}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


class RepetitionFilter(logging.Filter):
    """Lets a kind of line pass so many times in a window; the next that passes says how many did not.

    A kind is the text before its arguments are put in.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._window_ends = 0.0
        self._seen: dict[str, int] = {}
        self._held: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._now()
        if now >= self._window_ends:
            self._window_ends = now + REPEATED_WINDOW_S
            self._held = {
                kind: seen - REPEATED_MAX for kind, seen in self._seen.items() if seen > REPEATED_MAX
            }
            self._seen.clear()
        kind = str(record.msg)
        if kind not in self._seen and len(self._seen) >= _KINDS_MAX:
            return True
        seen = self._seen[kind] = self._seen.get(kind, 0) + 1
        held = self._held.pop(kind, 0)
        if held:
            record.msg = (
                f"{record.getMessage()} (and {held} more like this in the {REPEATED_WINDOW_S:.0f} s before)"
            )
            record.args = None
        return seen <= REPEATED_MAX


class _Queued(logging.Handler):
    """Hands finished lines to a thread that writes them; what does not fit in the queue is counted and told."""

    def __init__(self, lines: queue.Queue[logging.LogRecord]) -> None:
        super().__init__()
        self._lines = lines
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        if self._lost:
            record = logging.makeLogRecord({**record.__dict__, "lines_lost_before": self._lost})
        # Formatted here: what a line was given may have changed when the thread comes to it.
        line = logging.makeLogRecord({"msg": self.format(record)})
        try:
            self._lines.put_nowait(line)
            self._lost = 0
        except queue.Full:
            self._lost += 1


class _Outputs(logging.Handler):
    """Several as one, so that what is filtered is filtered once for all of them."""

    def __init__(self, handlers: Sequence[logging.Handler]) -> None:
        super().__init__()
        self._handlers = handlers

    def emit(self, record: logging.LogRecord) -> None:
        for handler in self._handlers:
            handler.handle(record)


class Logs:
    """The outputs of this process's logging, from `start` to `stop`."""

    def __init__(self, config: BrokerConfig, *, stream: IO[str] | None = None) -> None:
        self._config = config
        self._stream = stream or sys.stderr
        self._outputs: logging.Handler | None = None
        self._stops: list[Callable[[], None]] = []

    def start(self) -> None:
        """OSError if the log file cannot be written."""
        config = self._config
        shown = logging.StreamHandler(self._stream)
        colour = self._stream.isatty() and not os.environ.get("NO_COLOR")
        shown.setFormatter(
            JsonFormatter() if config.flint_log_format == "json" else TextFormatter(colour=colour)
        )
        self._outputs = _Outputs([shown, self._file()] if config.flint_log_file else [shown])
        self._outputs.addFilter(RepetitionFilter())
        root = logging.getLogger()
        root.addHandler(self._outputs)
        root.setLevel(config.flint_log_level)

    def _file(self) -> logging.Handler:
        from logging.handlers import QueueListener, RotatingFileHandler  # 10 ms to import, for few

        config = self._config
        path = os.path.abspath(config.flint_log_file)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = RotatingFileHandler(
            path,
            maxBytes=config.flint_log_file_max_bytes,
            backupCount=config.flint_log_file_count - 1,
            encoding="utf-8",
        )
        lines: queue.Queue[logging.LogRecord] = queue.Queue(_QUEUED_MAX)
        listener = QueueListener(lines, file)
        listener.start()
        self._stops += [listener.stop, file.close]
        outlet = _Queued(lines)
        outlet.setFormatter(JsonFormatter())
        return outlet

    def stop(self) -> None:
        """Everything logged so far is written when this returns."""
        if self._outputs is not None:
            logging.getLogger().removeHandler(self._outputs)
        for stop in self._stops:
            stop()
        self._stops.clear()
