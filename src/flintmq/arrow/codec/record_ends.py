"""Where the records of one payload end, one after the other.

It is for batches that are too few to be walked side by side. This module must not know what is inside a record.
"""

from __future__ import annotations


def ends(data: bytes, count: int) -> list[int] | None:
    """Behind each of `count` records; None if their lengths do not lead to the data's end.

    A negative length counts as its half: who looks at lengths all at once finds it sooner than this loop would.
    """
    positions: list[int] = []
    append = positions.append
    position = 0
    try:
        for _ in range(count):
            # Written out for one and two bytes, which most records have: this is all that such a record costs.
            size = data[position]
            if size < 0x80:
                position += 1 + (size >> 1)
            else:
                byte = data[position + 1]
                size = size & 0x7F | (byte & 0x7F) << 7
                position += 2
                shift = 14
                while byte >= 0x80:
                    byte = data[position]
                    position += 1
                    size |= (byte & 0x7F) << shift
                    shift += 7
                    if shift > 35:
                        return None
                position += size >> 1
            append(position)
    except IndexError:
        return None
    return positions if position == len(data) else None
