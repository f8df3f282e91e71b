"""A proxy before an S3 server that loses answers, or requests, so that it is not known what became of a put.

with LossyProxy(server) as proxy:
    proxy.lose("answer", of_put="/log/")
    open_store(url, proxy.settings)
"""

from __future__ import annotations

import http.client
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from support.lake.s3_server import S3Server


class LossyProxy:
    def __init__(self, server: S3Server) -> None:
        self._settings = server.settings
        self._faults: deque[tuple[str, str]] = deque()
        self.puts: list[str] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fault = proxy._fault(self.command, self.path)
                if fault == "request":
                    self.close_connection = True
                    return
                far = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
                far.request(self.command, self.path, body=body, headers=dict(self.headers))
                answer = far.getresponse()
                content = answer.read()
                far.close()
                if fault == "answer":
                    self.close_connection = True
                    return
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="lossy-proxy")

    @property
    def settings(self) -> dict[str, str]:
        return {**self._settings, "endpoint": f"http://127.0.0.1:{self._server.server_address[1]}"}

    def __enter__(self) -> LossyProxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def lose(self, what: str, *, of_put: str, times: int = 1) -> None:
        """`what` is `answer` or `request`, of the next puts whose path has `of_put` in it."""
        self._faults.extend([(what, of_put)] * times)

    def _fault(self, command: str, path: str) -> str | None:
        if command != "PUT":
            return None
        self.puts.append(path)
        if self._faults and self._faults[0][1] in path:
            return self._faults.popleft()[0]
        return None
