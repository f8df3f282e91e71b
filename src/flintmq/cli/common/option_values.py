"""Values of options as they are typed: durations and sizes. Pure."""

from __future__ import annotations

from flintmq.errors import ConfigurationError
from flintmq.settings import durations
from flintmq.settings.kinds import Unit, plain_number


def parse_duration_ms(option: str, text: str) -> int:
    """Parse `90s`, `7d`, `30 minutes`, `1 hour 30 seconds`; a number without a unit is rejected."""
    duration_ms = durations.parse_duration_ms(text)
    if duration_ms is None:
        raise ConfigurationError(
            f"{option} {text}: expected a duration such as 90s, 30 minutes, 1h or 7 days"
        )
    return duration_ms


def parse_size_bytes(option: str, text: str, *, example: str, least: int = 0) -> int:
    """Parse `64MiB`, or a plain number of bytes; fewer than `least` are rejected."""
    plain = plain_number(Unit.BYTES, text)
    if not plain.isdecimal() or int(plain) < least:
        raise ConfigurationError(f"{option} {text}: expected a size such as {example}")
    return int(plain)
