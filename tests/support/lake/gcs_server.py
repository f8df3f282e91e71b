"""A small server that speaks the part of Google Cloud Storage's XML API that stores use: in memory, without accounts.

    with GcsServer() as server:
        server.settings          for a store: a service account that names the server

It runs in a process of its own: a library that holds the interpreter while it reads would wait for itself.
Invariant: a put with `x-goog-if-generation-match: 0` makes an object or is refused with 412, whoever else puts; the
process is gone when the block ends.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "lake"
_PAGE = 3
"""Entries of a list: few, so that lists have pages."""


class GcsServer:
    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._port = 0

    @property
    def settings(self) -> dict[str, str]:
        account = {
            "gcs_base_url": f"http://127.0.0.1:{self._port}",
            "disable_oauth": True,
            "client_email": "nobody",
            "private_key": "",
            "private_key_id": "",
        }
        return {"service_account_key": json.dumps(account), "allow_http": "true"}

    def __enter__(self) -> GcsServer:
        self._process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


class _Objects:
    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state = _Objects()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        state, name = self.server_state, self._name()
        condition = self.headers.get("x-goog-if-generation-match")
        source = self.headers.get("x-goog-copy-source")
        with state.lock:
            if condition == "0" and name in state.objects:
                self._respond(412, b"")
                return
            if source is not None:
                copied = state.objects.get(unquote(source).removeprefix("/").partition("/")[2])
                if copied is None:
                    self._respond(404, b"")
                    return
                data = copied
            state.objects[name] = data
        self._respond(200, b"", ETag=_etag(data))

    def do_GET(self) -> None:
        if self._name() == "":
            self._list()
            return
        data = self.server_state.objects.get(self._name())
        if data is None:
            self._respond(404, b"")
            return
        chosen = self.headers.get("Range")
        if chosen is None or self.command == "HEAD":
            self._respond(200, data, ETag=_etag(data))
            return
        first, _, last = chosen.removeprefix("bytes=").partition("-")
        begin = int(first) if first else len(data) - int(last)
        end = min(int(last), len(data) - 1) if first and last else len(data) - 1
        place = f"bytes {begin}-{end}/{len(data)}"
        self._respond(206, data[begin : end + 1], **{"ETag": _etag(data), "Content-Range": place})

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        with self.server_state.lock:
            was_there = self.server_state.objects.pop(self._name(), None) is not None
        self._respond(204 if was_there else 404, b"")

    def _list(self) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        begin = asked.get("continuation-token", asked.get("start-after", ""))
        with self.server_state.lock:
            found = sorted(
                (name, data)
                for name, data in self.server_state.objects.items()
                if name.startswith(asked.get("prefix", "")) and name > begin
            )
        page = found[:_PAGE]
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(data)}</Size>"
            f"<LastModified>2026-01-31T12:00:00.000Z</LastModified><ETag>{_etag(data)}</ETag></Contents>"
            for name, data in page
        )
        more = (
            f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>" if found[_PAGE:] else ""
        )
        self._respond(200, f"<ListBucketResult>{contents}{more}</ListBucketResult>".encode())

    def _name(self) -> str:
        bucket, _, name = unquote(urlsplit(self.path).path).removeprefix("/").partition("/")
        assert bucket == BUCKET, self.path
        return name

    def _respond(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Last-Modified": formatdate(usegmt=True), **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
