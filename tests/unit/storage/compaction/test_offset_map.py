"""The key map: the newest offset wins, in a dict and in the table alike, and never more keys than fit."""

from __future__ import annotations

import random

import pytest

from flintmq.storage.compaction.offset_map import (
    ENTRY_BYTES,
    NOT_FOUND,
    SPECIAL,
    SUPERSEDED,
    KeyTable,
    OffsetMap,
)

DICT_MEMORY = 1 << 20
TABLE_MEMORY = 2400
"""An eighth of it is too little for a dict of three keys."""


def key_map(memory: int, *, load_factor: float = 1.0, first: int = 0, end: int = 1000) -> OffsetMap:
    return OffsetMap(memory, load_factor, first_offset=first, end_offset=end)


@pytest.mark.parametrize("memory", [DICT_MEMORY, TABLE_MEMORY])
def test_the_newest_offset_of_a_key_is_kept(memory: int) -> None:
    keys = key_map(memory)
    assert keys.put_all([b"a", b"b", b"a", None, b"c"], [0, 1, 2, 3, 4]) is None
    assert keys.put_all([b"b"], [9]) is None
    assert [keys.get(key) for key in (b"a", b"b", b"c", b"d")] == [2, 9, 4, NOT_FOUND]
    assert keys.size == 3


@pytest.mark.parametrize("memory", [DICT_MEMORY, TABLE_MEMORY])
def test_records_are_superseded_by_newer_ones_with_their_key(memory: int) -> None:
    keys = key_map(memory, first=10)
    keys.put_all([b"a", b"b", b"a", None, b"c"], [10, 11, 12, 13, 14])
    # From the marks, with and without gaps, and by looking up what lies before the stretch.
    assert keys.superseded([b""] * 5, [10, 11, 12, 13, 14]) == bytes((1, 0, 0, 0, 0))
    assert keys.superseded([b"", b""], [10, 12]) == bytes((1, 0))
    assert keys.superseded([b"a", b"x", None], [3, 4, 5]) == bytes((1, 0, 0))
    assert keys.superseded([], []) == b""


def test_offsets_without_room_for_marks_are_looked_up() -> None:
    keys = key_map(TABLE_MEMORY, end=10**12)
    far = TABLE_MEMORY
    assert not keys.has_marks(far, far)
    keys.put_all([b"a", b"b", b"a"], [far, far + 1, far + 2])
    assert keys.superseded([b"a", b"b", b"a"], [far, far + 1, far + 2]) == bytes((1, 0, 0))


def test_a_full_map_takes_no_record_with_a_key_not_even_a_known_one() -> None:
    keys = key_map(ENTRY_BYTES * 3)
    assert keys.capacity == 3
    assert keys.put_all([b"a", b"b"], [0, 1]) is None
    assert keys.put_all([b"a", None, b"c", None, b"a"], [2, 3, 4, 5, 6]) == 4
    assert [keys.get(key) for key in (b"a", b"b", b"c")] == [2, 1, 4]
    assert keys.put_all([None], [7]) is None


def test_the_load_factor_limits_the_number_of_keys_and_one_always_fits() -> None:
    assert key_map(ENTRY_BYTES * 100, load_factor=0.75).capacity == 75
    assert key_map(1, load_factor=0.1).capacity == 1


def test_table_full_to_the_last_slot_finds_every_key_and_no_other() -> None:
    count = 500
    table = KeyTable(count)
    source = random.Random(5)
    names = [source.randbytes(source.randrange(0, 40)) + b"%d" % number for number in range(count)]
    for offset, name in enumerate(names):
        assert table.put(name, offset) == NOT_FOUND
    assert table.size == count
    assert [table.get(name) for name in names] == list(range(count))
    assert table.get(b"another") == NOT_FOUND
    assert table.put(names[7], 9000) == 7
    assert table.get(names[7]) == 9000


@pytest.mark.parametrize("memory", [DICT_MEMORY, TABLE_MEMORY])
def test_neighbours_are_taken_like_any_others(memory: int) -> None:
    keys = key_map(memory, first=10)
    assert keys.put_run([b"a", None, b"b", b"a"], 10) is None
    assert keys.put_run([b"b"], 14) is None
    assert [keys.get(key) for key in (b"a", b"b")] == [13, 14]
    assert keys.superseded([b""] * 5, [10, 11, 12, 13, 14]) == bytes((1, 0, 1, 0, 0))


def test_neighbours_that_do_not_all_fit_are_taken_as_far_as_they_do() -> None:
    keys = key_map(ENTRY_BYTES * 2)
    assert keys.put_run([b"a", None, b"b", None, b"c"], 0) == 4
    assert [keys.get(key) for key in (b"a", b"b", b"c")] == [0, 2, NOT_FOUND]


def test_marks_say_which_records_must_be_looked_at() -> None:
    keys = key_map(DICT_MEMORY, first=10)
    keys.put_run([b"a", None, b"b", b"c", b"a"], 10)
    assert keys.marks(10, 14) == bytes((SUPERSEDED, SPECIAL, 0, 0, 0))
    # Of a record that is superseded nothing else counts, whichever comes first.
    keys.mark_special(10)
    keys.mark_special(12)
    keys.mark_special(13)
    keys.put_run([b"b"], 15)
    assert keys.marks(10, 14) == bytes((SUPERSEDED, SPECIAL, SUPERSEDED, SPECIAL, 0))
    assert keys.superseded([b""] * 5, [10, 11, 12, 13, 14]) == bytes((1, 0, 1, 0, 0))
    # Beyond the marks nothing can be noted, and nothing breaks.
    keys.mark_special(9)
    keys.mark_special(10**9)


def test_the_table_is_no_larger_than_the_stretch_needs() -> None:
    keys = key_map(ENTRY_BYTES * 10**6, load_factor=0.9, end=50)
    assert keys.capacity == 900_000
    names = [b"%d" % number * 4_000 for number in range(50)]
    assert keys.put_run(list(names), 0) is None
    assert [keys.get(name) for name in names] == list(range(50))
    assert keys.size == 50
