"""Ranges of offsets whose batches are damaged on disk. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class CorruptRange(NamedTuple):
    """Offsets that are known to be damaged: refused, never served."""

    base_offset: int
    end_offset: int


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort ranges (first offset, offset after the last) and merge those that touch or overlap."""
    merged: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((first, end))
    return merged


def truncate_ranges(ranges: Iterable[CorruptRange], end_offset: int) -> list[CorruptRange]:
    """Return what lies of the ranges below `end_offset`."""
    return [
        CorruptRange(bad.base_offset, min(bad.end_offset, end_offset))
        for bad in ranges
        if bad.base_offset < end_offset
    ]


def subtract_range(ranges: Iterable[CorruptRange], start_offset: int, end_offset: int) -> list[CorruptRange]:
    """Return what lies of the ranges below `start_offset`, and from `end_offset` on."""
    left = []
    for bad in ranges:
        if bad.base_offset < min(start_offset, bad.end_offset):
            left.append(CorruptRange(bad.base_offset, min(bad.end_offset, start_offset)))
        if max(bad.base_offset, end_offset) < bad.end_offset:
            left.append(CorruptRange(max(bad.base_offset, end_offset), bad.end_offset))
    return left
