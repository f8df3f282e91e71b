"""The bounds that storage sets on what one log keeps in memory and on disk beside its batches, with their reasons."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    producers_max: int = 50_000
    """Producers that a log remembers. Each takes 0.5 to 1.4 KB, and a snapshot of them all is written when a segment
    is full. Anybody may write under any id, so the number must be bounded."""
    snapshots_kept: int = 3
    """Producer snapshots that stay in the directory, beside the newest durable one."""
    recent_batches: int = 64
    """Batches of the active segment whose positions are known without an index, for readers at the tail."""
    scan_bytes: int = 1024 * 1024
    """Bytes that recovery reads at a time, whatever length a batch claims: it is not to be believed yet."""


LOG_LIMITS = LogLimits()
