"""Damaged ranges of offsets, put together for people to read. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """In order, those that touch or overlap as one; each from its first offset to the one after its last."""
    found: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((first, end))
    return found
