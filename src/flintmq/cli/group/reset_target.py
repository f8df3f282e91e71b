"""Where a group's offsets are to be set, as it is typed, and which offset that is in one partition. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from flintmq.errors import ConfigurationError, ErrorCode, RequestError


class ResetScenario(Enum):
    EARLIEST = "--to-earliest"
    LATEST = "--to-latest"
    OFFSET = "--to-offset"
    SHIFT = "--shift-by"
    TIME = "--to-datetime"


@dataclass(frozen=True, slots=True)
class ResetTarget:
    scenario: ResetScenario
    number: int = 0
    """The offset, the distance, or the time in milliseconds."""


class PartitionOffsets(NamedTuple):
    """What is known of one partition."""

    committed: int | None
    first: int
    end: int
    at_time: int | None = None
    """The first offset at or after the time, if there is one."""


def parse_moment(text: str) -> int:
    """ISO 8601 in milliseconds since 1970; without a zone it is the local one."""
    try:
        return max(0, round(datetime.fromisoformat(text.strip()).timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        raise ConfigurationError(
            f"--to-datetime {text}: expected a time such as 2026-01-31T12:00 or 2026-01-31T12:00:00+01:00"
        ) from None


def parse_topic(text: str) -> tuple[str, list[int] | None]:
    """`orders` is all partitions, `orders:0,2` those two."""
    name, colon, rest = text.partition(":")
    if not colon:
        return name, None
    numbers = [part.strip() for part in rest.split(",")]
    if not name or not all(number.isascii() and number.isdecimal() for number in numbers):
        raise ConfigurationError(f"--topic {text}: expected TOPIC or TOPIC:PARTITION,PARTITION")
    return name, sorted({int(number) for number in numbers})


def reset_offset(target: ResetTarget, known: PartitionOffsets, partition: str) -> int:
    """What lies outside of the log is moved to its nearest end: a consumer could not read from there."""
    if target.scenario is ResetScenario.EARLIEST:
        wanted = known.first
    elif target.scenario is ResetScenario.LATEST:
        wanted = known.end
    elif target.scenario is ResetScenario.OFFSET:
        wanted = target.number
    elif target.scenario is ResetScenario.TIME:
        wanted = known.end if known.at_time is None else known.at_time
    else:
        if known.committed is None:
            raise RequestError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{partition}: the group has no offset there that could be shifted; choose another way to set it",
            )
        wanted = known.committed + target.number
    return min(max(wanted, known.first), known.end)
