"""Which neighbouring segments become one (Kafka's rules)."""

from __future__ import annotations

from flintmq.storage.compaction.segment_groups import SegmentSizes, group_segments

PLENTY = 1 << 40


def grouped(
    *segments: tuple[int, int, int, int],
    segment_bytes: int = PLENTY,
    segment_index_bytes: int = PLENTY,
    end_offset: int = 10_000,
) -> list[list[int]]:
    groups = group_segments(
        [SegmentSizes(*segment) for segment in segments],
        segment_bytes=segment_bytes,
        segment_index_bytes=segment_index_bytes,
        end_offset=end_offset,
    )
    return [[segment.base_offset for segment in group] for group in groups]


def test_segments_are_joined_up_to_the_size_of_one() -> None:
    sizes = [(0, 40, 0, 0), (10, 60, 0, 0), (20, 1, 0, 0), (30, 99, 0, 0), (40, 1, 0, 0)]
    assert grouped(*sizes, segment_bytes=100) == [[0, 10], [20, 30], [40]]


def test_a_segment_that_is_too_large_alone_is_a_group_of_its_own() -> None:
    assert grouped((0, 500, 0, 0), (10, 500, 0, 0), segment_bytes=100) == [[0], [10]]


def test_each_index_has_room_for_the_group() -> None:
    assert grouped((0, 1, 60, 10), (10, 1, 60, 10), segment_index_bytes=100) == [[0], [10]]
    assert grouped((0, 1, 10, 60), (10, 1, 10, 60), segment_index_bytes=100) == [[0], [10]]
    assert grouped((0, 1, 50, 50), (10, 1, 50, 50), segment_index_bytes=100) == [[0, 10]]


def test_offsets_of_a_group_stay_within_what_an_index_expresses() -> None:
    far = 1 << 31
    # The second one ends where the third begins, the last one where the log may be cleaned to.
    assert grouped((0, 1, 0, 0), (10, 1, 0, 0), (far + 1, 1, 0, 0), end_offset=far + 2) == [
        [0],
        [10, far + 1],
    ]
    assert grouped((0, 1, 0, 0), (10, 1, 0, 0), end_offset=far) == [[0, 10]]
    assert grouped((0, 1, 0, 0), (10, 1, 0, 0), end_offset=far + 1) == [[0], [10]]


def test_an_empty_segment_is_joined_however_far_it_reaches() -> None:
    assert grouped((0, 1, 0, 0), (10, 0, 0, 0), end_offset=1 << 40) == [[0, 10]]


def test_nothing_makes_no_group() -> None:
    assert grouped() == []
