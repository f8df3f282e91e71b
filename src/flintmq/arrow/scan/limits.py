"""Limits of reading topics as Arrow. They travel with the options of a source to its workers."""

from __future__ import annotations

from dataclasses import dataclass

_KIB = 1024
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLimits:
    task_bytes: int = 128 * _MIB
    """A batch read without a word about tasks gets one for so much of a partition, as Spark does with files."""
    first_fetch_bytes: int = 1 * _MIB
    """The size of records is not known yet, and a short range should not bring megabytes after its end."""
    fetch_bytes_min: int = 64 * _KIB
    empty_responses_max: int = 20
    """In a row; each has waited half a second in the broker."""
    decoded_rows_max: int = 256 * _KIB
    decoded_bytes_max: int = 32 * _MIB
    """What is decoded at once, and then sliced: the more batches side by side, the less each of them costs."""
    batch_rows_max: int = 64 * _KIB
    batch_bytes_max: int = 16 * _MIB
    """What one record batch holds at most, except for a single row that is larger."""
    chunk_bytes: int = 4 * _MIB
    """What is read of a segment file at once, except for a single batch that is larger. The allocator returns larger
    buffers to the system each time, and every page of the next one is a fault."""
