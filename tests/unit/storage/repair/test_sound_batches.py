"""What is left of a damaged segment, whatever byte of it is wrong (S5)."""

from __future__ import annotations

import pytest

from flintmq.records.batch import assign_offsets
from flintmq.records.record import build_batch
from flintmq.storage.repair.sound_batches import Gap, sound_batches
from flintmq.testing.simulation import SimulatedDisk

BASE, COUNT, RECORDS = 100, 6, 2
END = BASE + COUNT * RECORDS
PATH = "segment"


def batch_at(offset: int) -> bytes:
    batch = bytearray(build_batch([(None, b"%d" % offset, 0, ()) for _ in range(RECORDS)]))
    assign_offsets(memoryview(batch), offset, 0)
    return bytes(batch)


OFFSETS = [BASE + number * RECORDS for number in range(COUNT)]
SIZE = len(batch_at(BASE))
INDEXED = tuple(range(0, COUNT * SIZE, 2 * SIZE))


def scan(
    data: bytes, *, indexed: tuple[int, ...] = INDEXED, end_offset: int = END, ends_damaged: bool = False
) -> list[int | Gap]:
    """Return the base offsets of sound batches, and gaps."""
    disk = SimulatedDisk(1)
    file = disk.open(PATH, create=True)
    file.pwrite(data, 0)
    found = sound_batches(
        file,
        base_offset=BASE,
        size=len(data),
        end_offset=end_offset,
        indexed=indexed,
        ends_damaged=ends_damaged,
    )
    return [one if isinstance(one, Gap) else one.header.base_offset for one in found]


def segment(*offsets: int) -> bytearray:
    return bytearray(b"".join(batch_at(offset) for offset in offsets or OFFSETS))


def test_a_sound_segment_has_no_gap() -> None:
    assert scan(bytes(segment())) == OFFSETS


def test_holes_of_compaction_are_no_gaps() -> None:
    assert scan(bytes(segment(102, 108)), indexed=()) == [102, 108]


def test_offsets_missing_at_the_end_are_a_gap_if_they_were_damaged() -> None:
    data = bytes(segment(100, 102))
    assert scan(data, indexed=()) == [100, 102]
    assert scan(data, indexed=(), ends_damaged=True) == [100, 102, Gap(104, END)]
    assert scan(b"", indexed=(), ends_damaged=True) == [Gap(BASE, END)]


@pytest.mark.parametrize("number", range(COUNT))
def test_a_batch_that_fails_its_crc_is_a_gap_of_its_own(number: int) -> None:
    data = segment()
    data[number * SIZE + 70] ^= 1
    expected: list[int | Gap] = list(OFFSETS)
    expected[number] = Gap(OFFSETS[number], OFFSETS[number] + RECORDS)
    assert scan(bytes(data)) == expected


def test_damage_of_neighbours_is_one_gap() -> None:
    data = segment()
    data[2 * SIZE + 70] ^= 1
    data[3 * SIZE + 70] ^= 1
    assert scan(bytes(data)) == [100, 102, Gap(104, 108), 108, 110]


def test_a_length_that_leads_nowhere_costs_batches_up_to_the_next_of_the_index() -> None:
    data = segment()
    data[2 * SIZE + 8] ^= 0x40
    assert scan(bytes(data)) == [100, 102, Gap(104, 108), 108, 110]
    assert scan(bytes(data), indexed=()) == [100, 102, Gap(104, END)]


def test_two_batches_out_of_order_are_both_damaged() -> None:
    """An offset that is too high shows at the next batch, one that is too low at its own."""
    high, low = segment(), segment()
    high[2 * SIZE + 7] ^= 1
    assert scan(bytes(high)) == [100, 102, Gap(104, 108), 108, 110]
    low[2 * SIZE + 7] = 102
    assert scan(bytes(low)) == [100, Gap(102, 106), 106, 108, 110]


@pytest.mark.parametrize("byte", range(21))
def test_any_flipped_bit_outside_of_the_crc_is_found_but_for_the_leader_epoch(byte: int) -> None:
    for bit in range(8):
        data = segment()
        data[2 * SIZE + byte] ^= 1 << bit
        found = scan(bytes(data))
        if 12 <= byte < 16:
            assert found == OFFSETS
            continue
        gaps = [one for one in found if isinstance(one, Gap)]
        assert any(gap.start_offset <= 104 and gap.end_offset >= 106 for gap in gaps), (byte, bit, found)
        # Sound batches and gaps make up the segment, each offset once.
        ends = [one.end_offset if isinstance(one, Gap) else one + RECORDS for one in found]
        starts = [one.start_offset if isinstance(one, Gap) else one for one in found]
        assert [BASE, *ends] == [*starts, END]


def test_a_file_that_became_shorter_and_garbage_are_gaps() -> None:
    data = bytes(segment())
    assert scan(data[: 3 * SIZE + 20]) == [100, 102, 104, Gap(106, END)]
    assert scan(bytes(300), indexed=()) == [Gap(BASE, END)]


def test_batches_larger_than_a_chunk_are_read_whole() -> None:
    batch = bytearray(build_batch([(None, bytes(1_500_000), 0, ())]))
    assign_offsets(memoryview(batch), BASE, 0)
    after = bytearray(build_batch([(None, b"", 0, ())]))
    assign_offsets(memoryview(after), BASE + 1, 0)
    assert scan(bytes(batch + after), indexed=(), end_offset=BASE + 2) == [BASE, BASE + 1]
