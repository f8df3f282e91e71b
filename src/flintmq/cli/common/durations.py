"""Durations, as they are typed and as they are shown. Pure."""

from __future__ import annotations

from flintmq.errors import ConfigurationError
from flintmq.settings import durations


def parse_duration_ms(option: str, text: str) -> int:
    """`90s`, `1h`, `7d`, as the value of an option."""
    duration_ms = durations.parse_duration_ms(text)
    if duration_ms is None:
        raise ConfigurationError(f"{option} {text}: expected a duration such as 90s, 15m, 1h or 7d")
    return duration_ms


def duration_text(seconds: float) -> str:
    """`12 s`, `3 min 5 s`, `2 h 10 min`, `4 d 1 h`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
