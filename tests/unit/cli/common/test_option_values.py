"""Durations and sizes as they are typed."""

from __future__ import annotations

import pytest

from flintmq.cli.common.option_values import parse_duration_ms, parse_size_bytes
from flintmq.errors import ConfigurationError


def test_a_duration_is_typed_as_people_say_it_and_needs_a_unit() -> None:
    assert parse_duration_ms("--older", "90s") == 90_000
    assert parse_duration_ms("--older", "7d") == 604_800_000
    for text, duration_ms in (
        ("7 days", 604_800_000),
        ("30 minutes", 1_800_000),
        ("1 hour 30 seconds", 3_630_000),
        ("1 Week", 604_800_000),
        ("1.5 h", 5_400_000),
    ):
        assert parse_duration_ms("--older", text) == duration_ms
    for text in ("90", "soon", "-1h", "7 dags", "7 days ago", "1 month"):
        with pytest.raises(ConfigurationError, match=f"--older {text}: expected a duration"):
            parse_duration_ms("--older", text)


def test_a_size_is_a_number_of_bytes_with_or_without_a_unit() -> None:
    assert parse_size_bytes("--size", "64MiB", example="1MiB") == 64 << 20
    assert parse_size_bytes("--size", "300", example="1MiB") == 300
    for text, least in (("much", 0), ("0", 1)):
        with pytest.raises(ConfigurationError, match=f"--size {text}: expected a size such as 1MiB"):
            parse_size_bytes("--size", text, example="1MiB", least=least)
