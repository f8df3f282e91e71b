from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.arrow.scan.offsets import (
    FROM_EARLIEST,
    FROM_LATEST,
    Offsets,
    OffsetsBound,
    TimestampBound,
    backlog,
    check_complete,
    from_json,
    is_repeatable,
    share,
    to_json,
)
from flintmq.errors import ConfigurationError

places = st.tuples(st.sampled_from("ab"), st.integers(0, 12))
offsets = st.dictionaries(places, st.integers(0, 1000), max_size=8)


@given(offsets)
def test_offsets_survive_json(given_offsets: Offsets) -> None:
    assert from_json(json.loads(json.dumps(to_json(given_offsets)))) == given_offsets


@given(offsets)
def test_the_text_does_not_depend_on_the_order_in_which_partitions_were_found(given_offsets: Offsets) -> None:
    backwards = dict(reversed(list(given_offsets.items())))
    assert json.dumps(to_json(backwards)) == json.dumps(to_json(given_offsets))


def test_the_form_is_that_of_sparks_kafka_source() -> None:
    found = to_json({("t", 10): 3, ("t", 9): 4, ("s", 0): 0})
    assert json.dumps(found) == '{"s": {"0": 0}, "t": {"9": 4, "10": 3}}'


@pytest.mark.parametrize("value", [[], {"t": 5}, {"t": {"-1": 5}}, {"t": {"0": "5"}}, {"t": {"0": True}}])
def test_what_has_another_form_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match="startingOffsets takes JSON"):
        from_json(value, what="startingOffsets")


def test_a_list_of_offsets_names_each_partition_and_no_other() -> None:
    check_complete({("t", 0): 1}, [("t", 0)], what="startingOffsets")
    with pytest.raises(ConfigurationError, match="missing: t-1"):
        check_complete({("t", 0): 1}, [("t", 0), ("t", 1)], what="startingOffsets")
    with pytest.raises(ConfigurationError, match="not read: t-1"):
        check_complete({("t", 0): 1, ("t", 1): 1}, [("t", 0)], what="startingOffsets")


@given(
    st.dictionaries(places, st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=8),
    st.integers(1, 300),
)
def test_a_limit_is_kept_used_and_shared(sizes: dict[tuple[str, int], tuple[int, int]], limit: int) -> None:
    start = {place: begin for place, (begin, _) in sizes.items()}
    end = {place: begin + size for place, (begin, size) in sizes.items()}
    shared = share(start, end, offsets_max=limit)
    assert backlog(start, shared) == min(limit, backlog(start, end))
    assert shared.keys() == end.keys()
    total = backlog(start, end)
    for place, offset in shared.items():
        assert start[place] <= offset <= end[place]
        if total > limit:
            assert abs((offset - start[place]) - (end[place] - start[place]) * limit / total) < 1


def test_a_limit_leaves_partitions_alone_that_went_back() -> None:
    assert share({("t", 0): 9, ("t", 1): 0}, {("t", 0): 2, ("t", 1): 50}, offsets_max=10) == {
        ("t", 0): 2,
        ("t", 1): 10,
    }


def test_which_starts_are_the_same_when_they_are_asked_for_again() -> None:
    def repeatable(bound: object) -> bool:
        return is_repeatable(bound, late_is_latest=False)  # type: ignore[arg-type]

    assert repeatable(FROM_EARLIEST)
    assert repeatable(OffsetsBound({("t", 0): 5, ("t", 1): -2}))
    assert repeatable(TimestampBound(1, {}))
    assert not repeatable(FROM_LATEST)
    assert not repeatable(OffsetsBound({("t", 0): 5, ("t", 1): -1}))
    assert not is_repeatable(TimestampBound(1, {}), late_is_latest=True)
