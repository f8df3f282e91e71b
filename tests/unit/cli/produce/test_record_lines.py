"""Records from lines of text."""

from __future__ import annotations

import os

import pytest

from flintmq.cli.produce.record_lines import RecordLineParser, UnreadableLine, parse_headers, read_lines
from flintmq.errors import ConfigurationError


def test_a_line_is_a_value_or_a_key_and_a_value() -> None:
    assert RecordLineParser().read(b"a:b") == (None, b"a:b")
    assert RecordLineParser(key=b"k").read(b"v") == (b"k", b"v")
    assert RecordLineParser(separator=b":").read(b"a:b:c") == (b"a", b"b:c")
    assert RecordLineParser(separator=b":", null=b"-").read(b"a:-") == (b"a", None)
    assert RecordLineParser(separator=b":", null=b"-").read(b"-:b") == (None, b"b")
    with pytest.raises(UnreadableLine, match="without the separator ':': abc"):
        RecordLineParser(separator=b":").read(b"abc")


def test_headers_may_repeat_and_may_be_empty() -> None:
    assert parse_headers(["a=1", "a=", "b=x=y"]) == (("a", b"1"), ("a", b""), ("b", b"x=y"))
    with pytest.raises(ConfigurationError, match="NAME=VALUE"):
        parse_headers(["oops"])


def test_a_pause_of_the_input_is_told_and_the_last_line_needs_no_end() -> None:
    readable, writable = os.pipe()
    try:
        lines = read_lines(readable)
        os.write(writable, b"one\r\ntwo\nth")
        assert [next(lines) for _ in range(3)] == [b"one", b"two", None]
        os.write(writable, b"ree\nfour")
        os.close(writable)
        # Whether the closed end counts as a pause is the system's affair.
        assert [line for line in lines if line is not None] == [b"three", b"four"]
    finally:
        os.close(readable)
