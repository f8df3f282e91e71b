"""An identity provider on the loopback interface: public keys at `/keys`, tokens for clients at `/token`."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs

from support.security.tokens import key_set, signed

CLIENT_ID, CLIENT_SECRET = "a-client", "the secret of a client"


class IdentityProvider:
    """Tests may change `keys`, `status` and `body` at any time; `fetches` counts requests for the keys."""

    def __init__(self, keystore: str | None = None, *, audience: str = "flintmq") -> None:
        """With TLS if there is a keystore: a PEM file with certificate and key."""
        self.keys = key_set()
        self.status = 200
        self.location = ""
        self.fetches = 0
        self.fetched = threading.Event()
        self.issued = 0
        self.audience = audience
        self.lifetime_s = 600
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.fetches += 1
                self._respond(provider.status, provider.keys.encode())
                provider.fetched.set()

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                expected = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
                known = self.headers.get("Authorization") == f"Basic {expected}"
                if self.path != "/token" or form.get("grant_type") != ["client_credentials"] or not known:
                    self._respond(401, b'{"error": "invalid_client"}')
                    return
                provider.issued += 1
                self._respond(200, json.dumps(provider.response()).encode())

            def _respond(self, status: int, body: bytes) -> None:
                self.send_response(status)
                if provider.location:
                    self.send_header("Location", provider.location)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.scheme = "http" if keystore is None else "https"
        if keystore is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(keystore)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def keys_url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}/keys"

    @property
    def token_url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}/token"

    def token(self, **claims: Any) -> str:
        now = int(time.time())
        return signed(
            {"sub": "alice", "aud": self.audience, "exp": now + self.lifetime_s, "iat": now, **claims}
        )

    def response(self) -> dict[str, Any]:
        return {
            "access_token": self.token(scope="flintmq"),
            "token_type": "Bearer",
            "expires_in": self.lifetime_s,
        }

    def __enter__(self) -> IdentityProvider:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
