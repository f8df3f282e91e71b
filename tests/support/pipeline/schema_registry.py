"""A small schema registry: a real server over HTTP that answers as Confluent's does.

with serving() as registry:
    registry.add("orders-value", 7, schema_text)
    HttpSchemas(registry.url)
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Registry(ThreadingHTTPServer):
    """Schemas by id, and the ids of subjects' versions."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.password: str | None = None
        self.failures = 0
        """How many requests are answered with 503 before one is answered well."""
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, subject: str, schema_id: int, text: str, **more: Any) -> None:
        self.schemas[schema_id] = {"schema": text, **more}
        self.subjects.setdefault(subject, []).append(schema_id)

    def answer(self, path: str) -> Any:
        parts = path.strip("/").split("/")
        if parts[:2] == ["schemas", "ids"]:
            return self.schemas.get(int(parts[2]))
        ids = self.subjects.get(parts[1])
        if ids is None:
            return None
        if len(parts) == 3:
            return list(range(1, len(ids) + 1))
        schema_id = ids[int(parts[3]) - 1]
        return {"id": schema_id, "version": int(parts[3]), **self.schemas[schema_id]}


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        registry = self.server
        registry.asked.append(self.path)
        wanted = registry.password and "Basic " + base64.b64encode(registry.password.encode()).decode()
        if registry.failures:
            registry.failures -= 1
            self._reply(503, {"error_code": 50301})
        elif wanted and self.headers.get("Authorization") != wanted:
            self._reply(401, {"error_code": 401})
        elif (found := registry.answer(self.path)) is None:
            self._reply(404, {"error_code": 40403, "message": "not there"})
        else:
            self._reply(200, found)

    def _reply(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def serving() -> Iterator[Registry]:
    with Registry() as one:
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield one
        finally:
            one.shutdown()
            thread.join()
