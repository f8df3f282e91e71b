"""Limits of decoding batches."""

from __future__ import annotations

from dataclasses import dataclass

from flintmq.records.limits import FETCHED_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLimits:
    data_bytes_max: int = 1 << 30
    """What is decoded at once, unpacked: with one batch more, Arrow's offsets of 32 bits still reach it."""
    unpacked_bytes_max: int = FETCHED_BYTES_MAX
    """What one batch may unpack to."""
    batch_rows_max: int = 1 << 22
    """Records that one batch may hold; more is taken for an attack."""
    batch_headers_max: int = 1 << 22
    """Tiny headers take far more memory as columns than as bytes: no batch may have very many."""


DEFAULT_LIMITS = DecodeLimits()
