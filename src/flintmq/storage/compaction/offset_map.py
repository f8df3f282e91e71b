"""The newest offset of every key in a stretch of log, in memory of a fixed size. Pure.

Few keys are kept in a dict, which is fastest. When it has outgrown its share of the memory everything moves into a
table where an entry takes 24 bytes whatever its key, a sixth of what it takes in the dict, and so saves passes over
the log. There a key is represented by 128 bits of keyed hash: two SipHashes under the secret that the interpreter
draws when it starts, one of the key and one of the key behind a byte.

A record of the stretch itself need not be looked up again: when a newer one takes its key's entry it is marked, in
a byte for each offset. Only offsets beyond the room for such marks and those below the stretch are looked up. Records
that need a look for another reason are marked as well, so that a batch without any mark stays without being read.

Invariant: at most `capacity` keys, which depends on the memory alone. The table takes no more than the memory asked
for, a quarter more while it grows and, uncompiled, as much again for that moment; the dict and the marks up to an
eighth each. It must not know records or batches.

It is compiled together with the record walk, and does the same uncompiled: the table's words are a vector that is
machine words in both cases.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

ENTRY_BYTES: Final = 24
DICT_ENTRY_BYTES: Final = 144
"""Of a dict, beside the bytes of the key: the key's and the offset's objects, and the slot at its emptiest."""
_DICT_SHARE: Final = 8
_MARKS_SHARE: Final = 8
_ENTRY_WORDS: Final = 3
_SLOTS_MIN: Final = 4096
_GROWTH: Final = 4
_PREFIX: Final = b"\x00"

NOT_FOUND: Final = -1

SUPERSEDED: Final = 1
SPECIAL: Final = 2
"""It is a tombstone, or has no key, and was not superseded."""


class OffsetMap:
    """For the offsets from `first_offset` up to below `end_offset`."""

    def __init__(self, memory_bytes: int, load_factor: float, *, first_offset: int, end_offset: int) -> None:
        slots = max(1, memory_bytes // ENTRY_BYTES)
        self.capacity = max(1, int(slots * min(load_factor, 1.0)))
        # There are no more keys than offsets; twice as many slots are as good as any number of them.
        self._slots = min(slots, max(1, 2 * (end_offset - first_offset)))
        self._dict: dict[bytes, int] = {}
        self._dict_bytes_left = memory_bytes // _DICT_SHARE
        self._table: KeyTable | None = None
        self._marks_start = first_offset
        self._marks_end = min(end_offset, first_offset + memory_bytes // _MARKS_SHARE)
        self._marks = bytearray(self._marks_end - first_offset)

    @property
    def size(self) -> int:
        return len(self._dict) if self._table is None else self._table.size

    def put_all(self, keys: list[bytes | None], offsets: list[int]) -> int | None:
        """Note the newest offset of each key; offsets ascend, from call to call as well. Records without a key
        say nothing.

        Answers with None, or with the number of the first record that did not fit. As in Apache Kafka, a full map
        takes no record with a key, not even one whose key it has.
        """
        if self.size + len(keys) <= self.capacity:
            self._take(keys, 0, offsets)
            return None
        for number, key in enumerate(keys):
            if key is None or self.size < self.capacity:
                self._take([key], offsets[number], None)
            else:
                return number
        return None

    def put_run(self, keys: list[bytes | None], first_offset: int) -> int | None:
        """The same for neighbours, whose offsets need not be made."""
        if self.size + len(keys) <= self.capacity:
            self._take(keys, first_offset, None)
            return None
        return self.put_all(keys, list(range(first_offset, first_offset + len(keys))))

    def mark_special(self, offset: int) -> None:
        """Of a record that was put and that must be looked at again, unless a newer one has its key."""
        at = offset - self._marks_start
        if 0 <= at < len(self._marks) and not self._marks[at]:
            self._marks[at] = SPECIAL

    def marks(self, first_offset: int, last_offset: int) -> bytes:
        """One of each offset, where there are marks."""
        start = self._marks_start
        return bytes(self._marks[first_offset - start : last_offset - start + 1])

    def has_marks(self, first_offset: int, last_offset: int) -> bool:
        """Whether `superseded` can do without the keys of these."""
        return self._marks_start <= first_offset and last_offset < self._marks_end

    def superseded(self, keys: list[bytes | None], offsets: list[int]) -> bytes:
        """For each record whether a newer one has its key: 1 or 0. One without a key has no newer one."""
        if not offsets:
            return b""
        start = self._marks_start
        first, last = offsets[0], offsets[-1]
        if self.has_marks(first, last):
            return bytes([int(self._marks[offset - start] == SUPERSEDED) for offset in offsets])
        flags = []
        for number, key in enumerate(keys):
            flags.append(0 if key is None or self.get(key) <= offsets[number] else 1)
        return bytes(flags)

    def get(self, key: bytes) -> int:
        """The newest offset of the key, or NOT_FOUND."""
        table = self._table
        return self._dict.get(key, NOT_FOUND) if table is None else table.get(key)

    def _take(self, keys: list[bytes | None], first_offset: i64, offsets: list[int] | None) -> None:
        """With these offsets, or those from the first on."""
        table = self._table
        known = self._dict
        marks = self._marks
        start: i64 = self._marks_start
        end: i64 = self._marks_end
        before = len(known)
        key_bytes = 0
        offset: i64 = first_offset - 1
        number: i64 = 0
        for key in keys:
            if offsets is None:
                offset += 1
            else:
                offset = offsets[number]
                number += 1
            if key is None:
                if offset >= start and offset < end:
                    marks[offset - start] = SPECIAL
                continue
            previous: i64 = NOT_FOUND
            if table is None:
                previous = known.get(key, NOT_FOUND)
                known[key] = offset
                key_bytes += len(key)
            else:
                previous = table.put(key, offset)
            if previous >= start and previous < end:
                marks[previous - start] = SUPERSEDED
        if len(known) > before:
            # The bytes of all keys where only some are new: an estimate that errs towards moving early.
            self._dict_bytes_left -= (len(known) - before) * DICT_ENTRY_BYTES + key_bytes
            if self._dict_bytes_left < 0:
                self._move()

    def _move(self) -> None:
        table = KeyTable(self._slots)
        for key, offset in self._dict.items():
            table.put(key, offset)
        self._dict = {}
        self._table = table


class KeyTable:
    """Open addressing with linear probing, in words: the two hashes, and the offset plus one, 0 where it is free.

    It begins small, since keys that lie close together are found faster, and grows fourfold when it is half full. The
    caller does not put more keys than slots.
    """

    def __init__(self, slots: int) -> None:
        self.size = 0
        self._slots_max: i64 = slots
        smaller = slots
        while smaller // _GROWTH >= _SLOTS_MIN:
            smaller //= _GROWTH
        self._slots: i64 = smaller
        self._words = _zeros(smaller * _ENTRY_WORDS)

    def put(self, key: bytes, offset: i64) -> i64:
        """Answers with the offset that the key had before, or NOT_FOUND."""
        low: i64 = hash(key)
        high: i64 = hash(_PREFIX + key)
        at: i64 = self._place(low, high)
        words = self._words
        previous: i64 = words[at + 2] - 1
        words[at + 2] = offset + 1
        if previous < 0:
            words[at] = low
            words[at + 1] = high
            self.size += 1
            if self.size * 2 > self._slots and self._slots < self._slots_max:
                self._grow()
        return previous

    def _grow(self) -> None:
        before = self._words
        end: i64 = self._slots * _ENTRY_WORDS
        # What division has cut off is made up for in the last step.
        grown: i64 = self._slots * _GROWTH
        self._slots = self._slots_max if grown > self._slots_max - grown else grown
        words = _zeros(self._slots * _ENTRY_WORDS)
        self._words = words
        at: i64 = 0
        while at < end:
            if before[at + 2]:
                to: i64 = self._place(before[at], before[at + 1])
                words[to] = before[at]
                words[to + 1] = before[at + 1]
                words[to + 2] = before[at + 2]
            at += _ENTRY_WORDS

    def get(self, key: bytes) -> i64:
        """The key's offset, or NOT_FOUND."""
        low: i64 = hash(key)
        high: i64 = hash(_PREFIX + key)
        words = self._words
        at: i64 = self._place(low, high)
        if words[at] == low and words[at + 1] == high:
            return words[at + 2] - 1
        return NOT_FOUND

    def _place(self, low: i64, high: i64) -> i64:
        """Where the entry is or would be; in a table without a free slot, anywhere."""
        words = self._words
        end: i64 = self._slots * _ENTRY_WORDS
        first: i64 = low % self._slots * _ENTRY_WORDS
        at: i64 = first
        while words[at + 2] and (words[at] != low or words[at + 1] != high):
            at += _ENTRY_WORDS
            if at == end:
                at = 0
            if at == first:
                break
        return at


def _zeros(count: int) -> vec[i64]:
    # Compiled there is no list, and this takes a third of the time that any other way does.
    return vec[i64]([0] * count)
