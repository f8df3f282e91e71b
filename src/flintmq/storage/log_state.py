"""What a log holds when it is opened. Recovery builds it, the log owns it afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

from flintmq.storage.corrupt_ranges import CorruptRange
from flintmq.storage.durability.flush import SealedSegment
from flintmq.storage.leader_epochs import LeaderEpochs
from flintmq.storage.producer_snapshots import ProducerSnapshots
from flintmq.storage.producer_state import ProducerState
from flintmq.storage.segment import Segment


@dataclass(slots=True, kw_only=True)
class LogState:
    snapshots: ProducerSnapshots
    segments: list[Segment] = field(default_factory=list)
    """In order of their offsets; the last one is active."""
    sealed: list[SealedSegment] = field(default_factory=list)
    corrupt: list[CorruptRange] = field(default_factory=list)
    producers: ProducerState = field(default_factory=ProducerState)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    start_offset: int = 0
    end_offset: int = 0
    recovery_point: int = 0
    first_dirty_offset: int = 0
    high_watermark: int = 0
    ended: list[tuple[int, int]] = field(default_factory=list)
    """Transactions whose markers lie from the high watermark on: (offset of the marker, first offset)."""
    last_flush_ms: int = 0
    has_truncation_note: bool = False
