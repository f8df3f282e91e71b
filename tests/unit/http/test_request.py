"""The head of an HTTP request, from bytes."""

from __future__ import annotations

import pytest

from flintmq.http.request import BadRequest, HttpRequest, Page, parse_head, response_head


def test_a_plain_request() -> None:
    head = b"GET /metrics HTTP/1.1\r\nHost: localhost:30004\r\nAccept: */*\r\n\r\n"
    assert parse_head(head) == HttpRequest("GET", "/metrics", keeps_alive=True)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/", "/"),
        (b"/health/ready?verbose=1", "/health/ready"),
        (b"/health/ready/", "/health/ready"),
        (b"/%6detrics", "/metrics"),
        (b"http://broker:30004/metrics", "/metrics"),
        (b"http://broker:30004", "/"),
        (b"*", "*"),
    ],
)
def test_paths(target: bytes, path: str) -> None:
    assert parse_head(b"GET " + target + b" HTTP/1.1\r\n\r\n").path == path


@pytest.mark.parametrize(
    ("head", "keeps_alive"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nConnection: Close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", True),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nContent-Length: +0\r\n\r\n", False),
    ],
)
def test_a_connection_goes_on_where_both_sides_know_where_the_next_request_begins(
    head: bytes, keeps_alive: bool
) -> None:
    assert parse_head(head).keeps_alive is keeps_alive


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"get / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nsp ace: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: a\x00b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: a\r\n folded: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nx: a\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 38\r\nContent-Length: 0\r\n\r\n", 400),
        (b"\x00\x00\x00\x12\x00\x12\x00\x03\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_head(head)
    assert refused.value.status == status


def test_the_answer_says_its_size_and_what_may_be_done() -> None:
    head = response_head(Page(b"12345", "text/plain", 405), keeps_alive=False).decode()
    assert head.startswith("HTTP/1.1 405 Method Not Allowed\r\n")
    assert "\r\nContent-Length: 5\r\n" in head
    assert "\r\nConnection: close\r\n" in head
    assert "\r\nAllow: GET, HEAD\r\n" in head
    assert head.endswith("\r\n\r\n")
