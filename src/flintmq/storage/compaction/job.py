"""What a compaction is asked to do, and what it tells while it does: plain values that travel as lines of JSON.

Nothing here knows how a log is cleaned.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import msgspec

from flintmq.storage.aborted_transactions import AbortedTransaction


@dataclass(frozen=True, slots=True)
class SegmentInput:
    base_offset: int
    size: int
    """Bytes of its log file that are batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionJob:
    """One pass over one log. Whoever asks sees to it that none of these segments changes meanwhile."""

    directory: str
    segments: tuple[SegmentInput, ...]
    """From the start of the log to the last one that begins below `end_offset`; never the active one."""
    first_dirty_offset: int
    """Below this no key is there twice."""
    end_offset: int
    """From here on nothing may be cleaned."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    dedupe_bytes: int
    """Memory for the keys of the dirty part (`log.cleaner.dedupe.buffer.size`)."""
    load_factor: float = 0.9
    """How full that may get (`log.cleaner.io.buffer.load.factor`)."""
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of every producer that the log remembers the epoch and the last offset of its last data, -1 if only a marker
    is known. The batch that holds these stays, without records if need be."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """Aborted transactions with data below `end_offset` whose markers lie in later segments than these."""
    bytes_per_second: int = 0
    """Read and written together; 0 for no limit (`log.cleaner.io.max.bytes.per.second`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionProgress:
    phase: str
    """`keys` while the dirty part is read, `records` while segments are rewritten."""
    bytes_done: int
    bytes_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """One cleaned segment is on stable storage, its files ending in `.cleaned`, ready to take the place of others.

    The fields from `size` to `index_bytes` are those of `Segment`. A group of which nothing is left is a segment
    of no bytes.
    """

    bases: tuple[int, ...]
    """The segments it replaces; its own base offset is the first of them."""
    size: int
    first_timestamp: int
    max_timestamp: int
    max_timestamp_offset: int
    index_bytes: int
    last_offset: int
    """Of its last batch, or one below its base offset."""
    has_transaction_index: bool
    bytes_before: int
    records_before: int
    records_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSummary:
    """The end of a pass that went well."""

    next_dirty_offset: int
    """Where the next pass begins; below the job's end if the keys did not fit."""
    keys: int
    key_capacity: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    keyless_records: int
    """Those that were dropped because they have no key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionDamage:
    """The end of a pass that met something else than a sound batch. Groups reported before it are good; of the
    one that it lies in nothing is left."""

    segment: int
    position: int
    first_offset: int
    end_offset: int
    """Offsets from the first to below the end cannot be trusted."""
    checksum_is_right: bool
    """The batch is as it was written, but its records cannot be read."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionFailure:
    """The end of a pass that the world got in the way of, a full disk for instance."""

    reason: str


Event = CompactionProgress | GroupResult | CompactionSummary | CompactionDamage | CompactionFailure

_EVENTS: dict[str, type[Event]] = {
    "progress": CompactionProgress,
    "group": GroupResult,
    "done": CompactionSummary,
    "damage": CompactionDamage,
    "error": CompactionFailure,
}
_NAMES = {kind: name for name, kind in _EVENTS.items()}


def encode_job(job: CompactionJob) -> bytes:
    """One line, with its end."""
    return msgspec.json.encode(job) + b"\n"


def decode_job(line: bytes) -> CompactionJob:
    return msgspec.json.decode(line, type=CompactionJob)


def encode_event(event: Event) -> bytes:
    """One line, with its end."""
    return msgspec.json.encode({"event": _NAMES[type(event)], **asdict(event)}) + b"\n"


def decode_event(line: bytes) -> Event:
    fields: dict[str, object] = msgspec.json.decode(line)
    return msgspec.convert(fields, _EVENTS[str(fields.pop("event"))])
