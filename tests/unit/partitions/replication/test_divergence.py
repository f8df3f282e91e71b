"""Where logs part: the tables of KIP-101 and KIP-279."""

from __future__ import annotations

import pytest

from flintmq.partitions.replication.divergence import common_end
from flintmq.storage.leader_epochs import LeaderEpochs


def make_epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start in entries:
        epochs.assign(epoch, start)
    return epochs


@pytest.mark.parametrize(
    ("entries", "end", "answer", "expected"),
    [
        # The follower has more of the epoch than the leader.
        (((0, 0), (1, 10)), 20, (1, 15), 15),
        # The follower has less of it: the leader's later records are fetched afterwards.
        (((0, 0), (1, 10)), 20, (1, 25), 20),
        # The leader never had epoch 1: both agree on epoch 0 up to where the follower's ends.
        (((0, 0), (1, 10)), 20, (0, 30), 10),
        (((0, 0), (1, 10)), 20, (0, 8), 8),
        # The follower does not know epoch 2, which the leader answers with: it asks again below it.
        (((0, 0), (1, 10), (3, 14)), 20, (2, 18), 14),
        # The follower knows no epoch at all.
        ((), 20, (2, 18), 18),
        # All epochs of the follower are older than the answer.
        (((0, 0),), 20, (2, 18), 18),
    ],
)
def test_a_follower_keeps_what_both_have(
    entries: tuple[tuple[int, int], ...], end: int, answer: tuple[int, int], expected: int
) -> None:
    epoch, end_offset = answer
    assert common_end(make_epochs(*entries), end, epoch=epoch, end_offset=end_offset) == expected
