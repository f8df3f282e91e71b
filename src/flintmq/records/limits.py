"""What the records of one batch may decompress to, wherever batches are opened.

A few kilobytes may decompress to gigabytes, and nobody looks into a batch before it is written unless its topic asks
for that. So whoever decompresses one says how much memory it is worth there, and takes more for an attack:
`decompress` stops at the bound and never allocates by what a frame claims.
"""

from __future__ import annotations

from typing import Final

MARKER_BYTES_MAX: Final = 64 * 1024
"""A control batch: one record of a dozen bytes."""

SEARCHED_BYTES_MAX: Final = 16 * 1024 * 1024
"""A lookup by timestamp: any client may ask for many at a time, and the batch's header answers where this is
exceeded."""

VALIDATED_BYTES_MAX: Final = 128 * 1024 * 1024
"""A produced batch whose topic has records validated or recompressed: on behalf of any client, several at a time."""

REPLAYED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Batches that a start has to read: markers in recovery, and the coordinators' own topics. They were accepted before,
so the bound is above that of validation; logs are loaded a few at a time."""

FETCHED_BYTES_MAX: Final = 512 * 1024 * 1024
"""A batch that a client of ours reads: the process has this partition's data to itself."""

COMPACTED_BYTES_MAX: Final = 1 << 30
"""A batch that is compacted: the broker accepted it without decompressing it, and what is refused here can never be
compacted. The compaction process does one batch at a time, in memory of its own."""
