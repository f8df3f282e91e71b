"""The head of an HTTP/1.x request, and the head of its answer. Pure.

Only what reading pages needs: a method, a path, whether the connection may go on. Anything else in a head is
checked for its form and passed over. This module knows no page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

_METHOD = re.compile(rb"[A-Z]{1,16}")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00\r\n]*?)[ \t]*")

REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class BadRequest(Exception):
    """Bytes that cannot be answered as asked; `status` says how they are answered."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    keeps_alive: bool
    authorization: str | None = field(default=None, repr=False)
    """The field of that name: credentials."""


@dataclass(frozen=True, slots=True)
class Page:
    body: bytes
    content_type: str
    status: int = 200
    fields: tuple[tuple[str, str], ...] = ()
    """Further header fields."""
    delay_s: float = 0.0
    """How long it is held back, from a client that guesses passwords."""


def plain_page(status: int, words: str, *fields: tuple[str, str]) -> Page:
    return Page(words.encode() + b"\n", "text/plain; charset=utf-8", status, fields)


def parse_head(head: bytes) -> HttpRequest:
    """`head` ends with the empty line."""
    request_line, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    words = request_line.split(b" ")
    if len(words) != 3 or not _METHOD.fullmatch(words[0]):
        raise BadRequest(400, "this is no HTTP request")
    method, target, version = words
    if version not in (b"HTTP/1.0", b"HTTP/1.1"):
        raise BadRequest(505, "HTTP/1.0 and HTTP/1.1 are spoken here")
    fields: dict[bytes, bytes] = {}
    authorization: str | None = None
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is None:
            raise BadRequest(400, "a header field that is none")
        name = match[1].lower()
        if name == b"authorization":
            if authorization is not None:
                raise BadRequest(400, "the field Authorization is given twice")
            authorization = match[2].decode("latin-1")
            continue
        if name == b"content-length" and name in fields:
            # A proxy that takes another of them sees other requests than these.
            raise BadRequest(400, "the field Content-Length is given twice")
        value = match[2].lower()
        fields[name] = fields[name] + b"," + value if name in fields else value
    # A body would be the next request's beginning; nothing here takes one, so the connection ends instead.
    has_body = b"transfer-encoding" in fields or fields.get(b"content-length", b"0") != b"0"
    connection = fields.get(b"connection", b"keep-alive" if version == b"HTTP/1.1" else b"close")
    return HttpRequest(
        method.decode(),
        _path_of(target),
        keeps_alive=b"close" not in connection and not has_body,
        authorization=authorization,
    )


def _path_of(target: bytes) -> str:
    """Without the query, and without scheme and host where a proxy sent them."""
    text = target.decode("ascii", "replace").partition("?")[0]
    if text.startswith(("http://", "https://")):
        text = "/" + text.split("/", 3)[3] if text.count("/") >= 3 else "/"
    path = unquote(text)
    return path.rstrip("/") or "/"


def response_head(page: Page, *, keeps_alive: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {page.status} {REASONS[page.status]}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        f"Connection: {'keep-alive' if keeps_alive else 'close'}",
    ]
    lines += [f"{name}: {value}" for name, value in page.fields]
    if page.status == 405:
        lines.append("Allow: GET, HEAD")
    return "\r\n".join([*lines, "", ""]).encode("ascii")
