"""The newest offset of every key in a stretch of log, in memory of a fixed size. Pure.

Few keys are kept in a dict, which is fastest. When it has outgrown its share of the memory everything moves into a
table where an entry takes 24 bytes whatever its key, a sixth of what it takes in the dict, and so saves passes over
the log. There a key is represented by 128 bits of keyed hash: two SipHashes under the secret that the interpreter
draws when it starts, one of the key and one of the key behind a byte.

A record of the stretch itself need not be looked up again: when a newer one takes its key's entry it is marked, in
a byte for each offset. Only offsets beyond the room for such marks and those below the stretch are looked up.

Invariant: at most `capacity` keys, which depends on the memory alone. The table takes no more than the memory asked
for, the dict and the marks up to an eighth more each. It must not know records or batches.

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
_PREFIX: Final = b"\x00"

NOT_FOUND: Final = -1


class KeyMap:
    """For the offsets from `first_offset` up to below `end_offset`."""

    def __init__(
        self, memory_bytes: int, load_factor: float, *, first_offset: int = 0, end_offset: int = 0
    ) -> None:
        self._slots = max(1, memory_bytes // ENTRY_BYTES)
        self.capacity = max(1, int(self._slots * min(load_factor, 1.0)))
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
            self._take(keys, offsets)
            return None
        for number, key in enumerate(keys):
            if key is not None:
                if self.size >= self.capacity:
                    return number
                self._take([key], [offsets[number]])
        return None

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
            if last - first + 1 == len(offsets):
                return bytes(self._marks[first - start : last - start + 1])
            return bytes([self._marks[offset - start] for offset in offsets])
        flags = []
        for number, key in enumerate(keys):
            flags.append(0 if key is None or self.get(key) <= offsets[number] else 1)
        return bytes(flags)

    def get(self, key: bytes) -> int:
        """The newest offset of the key, or NOT_FOUND."""
        table = self._table
        return self._dict.get(key, NOT_FOUND) if table is None else table.get(key)

    def _take(self, keys: list[bytes | None], offsets: list[int]) -> None:
        table = self._table
        known = self._dict
        marks = self._marks
        start: i64 = self._marks_start
        end: i64 = self._marks_end
        before = len(known)
        key_bytes = 0
        for number, key in enumerate(keys):
            if key is None:
                continue
            offset = offsets[number]
            previous: i64 = NOT_FOUND
            if table is None:
                previous = known.get(key, NOT_FOUND)
                known[key] = offset
                key_bytes += len(key)
            else:
                previous = table.put(key, offset)
            if previous >= start and previous < end:
                marks[previous - start] = 1
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

    The caller does not put more keys than slots.
    """

    def __init__(self, slots: int) -> None:
        self.size = 0
        self._slots: i64 = slots
        # Of as many zeros as bytes; a list of them would take as much again.
        self._words = vec[i64](bytes(slots * _ENTRY_WORDS), capacity=slots * _ENTRY_WORDS)

    def put(self, key: bytes, offset: i64) -> i64:
        """Answers with the offset that the key had before, or NOT_FOUND."""
        low: i64 = hash(key)
        high: i64 = hash(_PREFIX + key)
        words = self._words
        at: i64 = self._place(low, high)
        previous: i64 = words[at + 2] - 1
        if previous < 0:
            words[at] = low
            words[at + 1] = high
            self.size += 1
        words[at + 2] = offset + 1
        return previous

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
