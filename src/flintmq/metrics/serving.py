"""Figures of a program that is no broker, for Prometheus to ask.

    with FiguresServer(figures.text, port=9400): …        at http://127.0.0.1:9400/metrics

Invariant: one request at a time, in a thread of its own, and none may take long to be asked.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from typing import Final

from flintmq.errors import ConfigurationError
from flintmq.metrics.exposition import CONTENT_TYPE

logger = logging.getLogger(__name__)

_PATHS: Final = ("/metrics", "/prometheus")
_ASKED_WITHIN_S: Final = 5.0


class FiguresServer:
    def __init__(self, text: Callable[[], str], *, port: int, host: str = "127.0.0.1") -> None:
        """`port` 0 takes a free one."""

        class Page(_Page):
            told = staticmethod(text)

        try:
            self._server = HTTPServer((host, port), Page)
        except (OSError, OverflowError) as error:
            raise ConfigurationError(
                f"figures cannot be told at port {port} of {host}: {error}. Choose another"
            ) from error
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="figures", daemon=True)

    def __enter__(self) -> FiguresServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Page(BaseHTTPRequestHandler):
    told: Callable[[], str]
    timeout = _ASKED_WITHIN_S

    def do_GET(self) -> None:
        if self.path.partition("?")[0] not in _PATHS:
            self.send_error(404, f"there is only {_PATHS[0]}")
            return
        body = self.told().encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        logger.debug(format, *args)
