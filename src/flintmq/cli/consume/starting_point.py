"""Where reading begins, as it is typed: `beginning`, `end`, an offset, a distance from the end, a time. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from flintmq.errors import ConfigurationError, ErrorCode, RequestError
from flintmq.settings.kinds import Unit, plain_number


class StartMode(Enum):
    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    BEFORE_END = "before the end"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class StartingPoint:
    kind: StartMode
    number: int = 0
    """The offset, the number of records before the end, or the time in milliseconds."""


_NUMBER = re.compile(r"-?[0-9]+")
_AGE = re.compile(r"-([0-9.]+\s*[a-z]+)")
EXPECTED = (
    "beginning, end, an offset (120), the last so many (-10), an age (-1h) or a time (2026-01-31T12:00)"
)


def parse_start(text: str, now_ms: int) -> StartingPoint:
    """A time without a zone is the local one; `@` before milliseconds since 1970 is understood too."""
    text = text.strip().lower()
    if text in ("beginning", "start", "earliest"):
        return StartingPoint(StartMode.BEGINNING)
    if text in ("end", "latest"):
        return StartingPoint(StartMode.END)
    if _NUMBER.fullmatch(text):
        number = int(text)
        return (
            StartingPoint(StartMode.OFFSET, number)
            if number >= 0
            else StartingPoint(StartMode.BEFORE_END, -number)
        )
    if text.startswith("@") and text[1:].isdecimal():
        return StartingPoint(StartMode.TIME, int(text[1:]))
    age = _AGE.fullmatch(text)
    if age:
        age_ms = plain_number(Unit.MS, age[1])
        if age_ms.isdecimal():
            return StartingPoint(StartMode.TIME, max(0, now_ms - int(age_ms)))
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise ConfigurationError(f"--from {text}: expected {EXPECTED}") from None
    return StartingPoint(StartMode.TIME, max(0, round(moment.timestamp() * 1000)))


def position(start: StartingPoint, first: int, end: int, at_time: int | None) -> int:
    """The offset to begin with in a partition that holds `first` up to, and not including, `end`.

    `at_time` is the first offset at or after the time, if there is one. An offset that is not there is
    refused: whoever names one wants that record and no other.
    """
    if start.kind is StartMode.BEGINNING:
        return first
    if start.kind is StartMode.END:
        return end
    if start.kind is StartMode.BEFORE_END:
        return max(first, end - start.number)
    if start.kind is StartMode.TIME:
        return end if at_time is None else at_time
    if not first <= start.number <= end:
        holds = f"it holds {first} to {end - 1}" if first < end else f"it is empty, and goes on at {end}"
        raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE, f"there is no offset {start.number}: {holds}")
    return start.number
