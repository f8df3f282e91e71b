"""What a user asks of the source `flintmq`, from Spark's options, which are texts without case in their names. Pure.

Invariant: an option is either understood or refused with a message that says what to write; none is ignored. A
`SourceOptions` can be pickled: it travels to the workers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, TypeVar

from flintmq.arrow.codec.decode import COLUMNS
from flintmq.arrow.scan.limits import ScanLimits
from flintmq.arrow.scan.offsets import (
    FROM_EARLIEST,
    FROM_LATEST,
    Bound,
    OffsetsBound,
    TimestampBound,
    parse_assignment,
    parse_json,
)
from flintmq.arrow.scan.option_list import NAMES, refuse_out_of_place, refuse_unknown
from flintmq.arrow.security_options import parse_security_options
from flintmq.client.addresses import Address, parse_addresses
from flintmq.client.admin.topics import EARLIEST, LATEST
from flintmq.client.security import PLAINTEXT, ClientSecurity
from flintmq.errors import ConfigurationError
from flintmq.records.topic_partition import TopicPartition
from flintmq.settings.durations import parse_duration_ms

HEADERS: Final = "headers"
FETCH_BYTES: Final = 4 * 1024 * 1024
_FETCH_BYTES_MAX: Final = 256 * 1024 * 1024
_CLIENT_ID: Final = "flintmq-spark"
_DELAY_MS: Final = 15 * 60 * 1000
_COUNT_MAX: Final = (1 << 63) - 1

T = TypeVar("T")


class Segments(Enum):
    """Whether segments are read from the broker's own files."""

    AUTO = "auto"
    NEVER = "never"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """What is read: named topics, topics of a pattern, or partitions. Exactly one of them."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceOptions:
    bootstrap: tuple[Address, ...]
    topics: TopicSelection
    columns: tuple[str, ...]
    starting: Bound | None = None
    """None: the default, which is not the same for a stream."""
    ending: Bound = FROM_LATEST
    late_start_is_latest: bool = False
    tasks_min: int | None = None
    records_per_task_max: int | None = None
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_ms_max: int = _DELAY_MS
    fail_on_loss: bool = True
    read_committed: bool = False
    segments: Segments = Segments.AUTO
    group_id: str | None = None
    client_id: str = _CLIENT_ID
    request_timeout_ms: int = 30_000
    patience_ms: int = 120_000
    fetch_bytes: int = FETCH_BYTES
    check_crc: bool = True
    security: ClientSecurity = PLAINTEXT
    limits: ScanLimits = field(default_factory=ScanLimits)
    given: tuple[str, ...] = field(default=(), repr=False)
    """The names of the options that were given."""

    def for_batch(self) -> SourceOptions:
        """Refuse what only a stream has."""
        for name in self.given:
            refuse_out_of_place(name, streaming=False)
        if self.starting == FROM_LATEST or _lists(self.starting, LATEST):
            raise ConfigurationError(
                "startingOffsets of a batch read cannot be latest: nothing would be read"
            )
        if _lists(self.ending, EARLIEST):
            raise ConfigurationError("endingOffsets cannot be earliest: nothing would be read")
        return self

    def for_stream(self) -> SourceOptions:
        """Refuse what only a batch read has."""
        for name in self.given:
            refuse_out_of_place(name, streaming=True)
        return self

    def from_files(self) -> SourceOptions:
        """As the format asks that is about files: they are always looked for."""
        if "segments" in self.given and self.segments is not Segments.ALWAYS:
            raise ConfigurationError(
                f"the format flintmq_segments always reads segments from files; for {self.segments.value} "
                "use the format flintmq"
            )
        return replace(self, segments=Segments.ALWAYS)


def parse(options: Mapping[str, str]) -> SourceOptions:
    """ConfigurationError says what is wrong, and what is right."""
    given = _Given({name.lower(): value.strip() for name, value in options.items()})
    for name in options:
        refuse_unknown(name)
    return SourceOptions(
        bootstrap=tuple(parse_addresses(given.required("kafka.bootstrap.servers"))),
        topics=_topics(given),
        columns=_columns(given),
        starting=_bound(given, "starting"),
        ending=_bound(given, "ending") or FROM_LATEST,
        late_start_is_latest=given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
        == "latest",
        tasks_min=given.count("minPartitions"),
        records_per_task_max=given.count("maxRecordsPerPartition"),
        offsets_per_trigger_max=given.count("maxOffsetsPerTrigger"),
        offsets_per_trigger_min=given.count("minOffsetsPerTrigger"),
        trigger_delay_ms_max=given.parsed("maxTriggerDelay", _duration_ms, _DELAY_MS),
        fail_on_loss=given.flag("failOnDataLoss", True),
        read_committed=given.choice(
            "kafka.isolation.level", ("read_uncommitted", "read_committed"), "read_uncommitted"
        )
        == "read_committed",
        segments=Segments(given.choice("segments", tuple(one.value for one in Segments), "auto")),
        group_id=_group(given),
        client_id=given.get("kafka.client.id") or _CLIENT_ID,
        request_timeout_ms=given.count("kafka.request.timeout.ms") or 30_000,
        patience_ms=given.count("kafkaConsumer.pollTimeoutMs") or 120_000,
        fetch_bytes=min(given.count("kafka.max.partition.fetch.bytes") or FETCH_BYTES, _FETCH_BYTES_MAX),
        check_crc=given.flag("kafka.check.crcs", True),
        security=parse_security_options(options),
        given=tuple(given.values),
    )


class _Given:
    """The options by their names in lower case, and how each kind is read."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values

    def get(self, name: str) -> str | None:
        return self.values.get(name.lower())

    def required(self, name: str) -> str:
        value = self.get(name)
        if not value:
            raise ConfigurationError(f"the option {name} is required: {NAMES[name.lower()].meaning}")
        return value

    def parsed(self, name: str, parse_value: Callable[[str], T | None], default: T) -> T:
        value = self.get(name)
        if value is None:
            return default
        found = parse_value(value)
        if found is None:
            raise ConfigurationError(f"{name} cannot be {value!r}: {NAMES[name.lower()].meaning}")
        return found

    def count(self, name: str) -> int | None:
        value = self.get(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdecimal()) or not 0 < int(value) <= _COUNT_MAX:
            raise ConfigurationError(f"{name} takes a whole number above 0, not {value!r}")
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.choice(name, ("true", "false"), str(default).lower())
        return value == "true"

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = (self.get(name) or default).lower()
        if value not in allowed:
            raise ConfigurationError(f"{name} takes {' or '.join(allowed)}, not {self.get(name)!r}")
        return value


def _topics(given: _Given) -> TopicSelection:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if given.get(name)]
    if len(ways) != 1:
        said = f"not {' and '.join(ways)} together" if ways else "none is given"
        raise ConfigurationError(f"name what to read by one of subscribe, subscribePattern or assign; {said}")
    value = given.required(ways[0])
    if ways[0] == "assign":
        return TopicSelection(partitions=parse_assignment(value, what="assign"))
    if ways[0] == "subscribe":
        names = dict.fromkeys(name.strip() for name in value.split(",") if name.strip())
        if not names:
            raise ConfigurationError("subscribe takes names of topics, separated by commas")
        return TopicSelection(names=tuple(names))
    try:
        re.compile(value)
    except re.error as error:
        raise ConfigurationError(f"subscribePattern is not a regular expression: {error}") from None
    return TopicSelection(pattern=value)


def _columns(given: _Given) -> tuple[str, ...]:
    with_headers = given.flag("includeHeaders", False)
    value = given.get("columns")
    if value is None:
        return tuple(name for name in COLUMNS if with_headers or name != HEADERS)
    by_lower = {name.lower(): name for name in COLUMNS}
    asked = [name.strip() for name in value.split(",") if name.strip()]
    columns = tuple(dict.fromkeys(by_lower.get(name.lower(), "") for name in asked))
    if not columns or "" in columns:
        raise ConfigurationError(f"columns takes some of {', '.join(COLUMNS)}, not {value!r}")
    if with_headers and HEADERS not in columns:
        raise ConfigurationError("includeHeaders is true, but columns leaves headers out")
    return columns


def _bound(given: _Given, way: str) -> Bound | None:
    """A time for all comes before times for each, and those before offsets, as with Spark's Kafka source."""
    at_time, at_times, at_offsets = f"{way}Timestamp", f"{way}OffsetsByTimestamp", f"{way}Offsets"
    timestamp = given.parsed(at_time, _timestamp_ms, None)
    if timestamp is not None:
        return TimestampBound(timestamp, {})
    if (times := given.get(at_times)) is not None:
        by_partition = parse_json(times, what=at_times)
        if any(time < 0 for time in by_partition.values()):
            raise ConfigurationError(f"{at_times} takes milliseconds since 1970, none below 0")
        return TimestampBound(None, by_partition)
    offsets = given.get(at_offsets)
    if offsets is None:
        return None
    if offsets.lower() == "latest":
        return FROM_LATEST
    if offsets.lower() == "earliest":
        if way == "ending":
            raise ConfigurationError("endingOffsets cannot be earliest: nothing would be read")
        return FROM_EARLIEST
    if not offsets.startswith("{"):
        raise ConfigurationError(f"{at_offsets} cannot be {offsets!r}: {NAMES[at_offsets.lower()].meaning}")
    listed = parse_json(offsets, what=at_offsets)
    if any(offset < EARLIEST for offset in listed.values()):
        raise ConfigurationError(f"{at_offsets}: an offset is 0 or more, or -1 (latest), or -2 (earliest)")
    return OffsetsBound(listed)


def _lists(bound: Bound | None, marker: int) -> bool:
    return isinstance(bound, OffsetsBound) and marker in bound.offsets.values()


def _group(given: _Given) -> str | None:
    own, theirs = given.get("groupId"), given.get("kafka.group.id")
    if own and theirs and own != theirs:
        raise ConfigurationError("groupId and kafka.group.id mean the same, and differ; give one of them")
    return own or theirs or None


def _timestamp_ms(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None


def _duration_ms(text: str) -> int | None:
    return parse_duration_ms(text, default_unit="ms")
