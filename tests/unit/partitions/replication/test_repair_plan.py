"""What is done about damage, and who is asked (S5, KIP-392)."""

from __future__ import annotations

import pytest

from flintmq.partitions.replication.repair_plan import RepairAction, repair_action, repair_sources

COPY, RESIGN, WAIT = RepairAction.COPY, RepairAction.RESIGN, RepairAction.WAIT


@pytest.mark.parametrize("leads", [True, False])
def test_what_is_committed_is_copied(leads: bool) -> None:
    for is_alone in (True, False):
        action = repair_action(
            leads=leads, damage_end=10, high_watermark=10, committed_end=-1, is_alone=is_alone
        )
        assert action is COPY


def test_a_follower_waits_until_damage_is_committed() -> None:
    """It truncates nothing: it may be in the ISR, and the leader may have acknowledged what it would drop."""
    for committed_end in (-1, 5, 20):
        action = repair_action(
            leads=False, damage_end=11, high_watermark=10, committed_end=committed_end, is_alone=False
        )
        assert action is WAIT


@pytest.mark.parametrize(
    ("committed_end", "is_alone", "expected"),
    [(20, False, WAIT), (11, False, WAIT), (10, False, RESIGN), (-1, False, RESIGN), (-1, True, WAIT)],
    ids=["about to be committed", "just", "followers lack it", "followers are unknown", "alone"],
)
def test_a_leader_resigns_if_its_followers_cannot_copy_what_is_damaged(
    committed_end: int, is_alone: bool, expected: RepairAction
) -> None:
    action = repair_action(
        leads=True, damage_end=11, high_watermark=10, committed_end=committed_end, is_alone=is_alone
    )
    assert action is expected


def test_the_leader_is_asked_first_then_the_isr_then_the_others() -> None:
    alive = {1: None, 2: None, 3: None, 4: None}
    assert repair_sources(node_id=2, leader=3, isr=[1, 2, 3], replicas=[4, 3, 2, 1, 5], alive=alive) == [
        3,
        1,
        4,
    ]
    assert repair_sources(node_id=3, leader=3, isr=[3], replicas=[3, 2], alive=alive) == [2]
    assert repair_sources(node_id=3, leader=-1, isr=[], replicas=[3], alive=alive) == []
