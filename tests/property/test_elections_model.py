"""Whatever brokers, leaders and controllers do, no acknowledged record is lost by a clean election."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.cluster.replica_model import ACTION_COUNT, ReplicaModel

STEPS = st.lists(
    st.tuples(st.integers(0, ACTION_COUNT - 1), st.integers(0, 3), st.integers(0, 7)),
    min_size=10,
    max_size=120,
)


@given(STEPS, st.integers(1, 3))
def test_any_order_of_events_keeps_what_was_acknowledged(
    steps: list[tuple[int, int, int]], min_isr: int
) -> None:
    model = ReplicaModel(min_isr=min_isr)
    for step in steps:
        model.step(*step)


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_long_lives_keep_what_was_acknowledged(start: int) -> None:
    totals: Counter[str] = Counter()
    for seed in range(start, start + 50):
        print("seed", seed)
        random = Random(seed)
        model = ReplicaModel(min_isr=random.randint(1, 3))
        for _ in range(1000):
            model.step(random.randrange(ACTION_COUNT), random.randrange(4), random.randrange(8))
            if model.is_dead:
                break
        totals.update(model.counts)
    print(dict(totals))
    assert all(totals[name] > 50 for name in ("elections", "acks", "isr", "unclean", "refused")), totals
