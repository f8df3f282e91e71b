"""A partition moves without losing what is in sync (KIP-455)."""

from __future__ import annotations

import pytest

from flintmq.cluster.elections import ElectionRules
from flintmq.cluster.reassignment import cancelled, completed, settled, settled_from, start, target_of
from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata.image import BrokerImage
from flintmq.metadata.keys import BrokerValue, PartitionValue

RULES = ElectionRules(min_isr=1, allows_unclean=False)
BROKERS = {node: BrokerImage(node, 10 * node, BrokerValue(incarnation="i")) for node in range(1, 7)}


def state(
    replicas: list[int],
    isr: list[int],
    *,
    leader: int = 1,
    epoch: int = 5,
    adding: list[int] | None = None,
    removing: list[int] | None = None,
    elr: list[int] | None = None,
) -> PartitionValue:
    elr = elr or []
    return PartitionValue(
        leader=leader,
        epoch=epoch,
        replicas=replicas,
        isr=isr,
        isr_epochs=[10 * node for node in isr],
        elr=elr,
        elr_epochs=[10 * node for node in elr],
        adding=adding or [],
        removing=removing or [],
    )


MOVING = state([3, 4, 1, 2], [1, 2], adding=[3, 4], removing=[1, 2])


def test_a_reassignment_begins_with_the_replicas_of_both() -> None:
    started = start(state([1, 2], [1, 2]), [3, 4], BROKERS, factor_may_change=False)
    assert started == MOVING
    assert target_of(started) == [3, 4]


def test_another_target_replaces_the_first_and_keeps_what_it_has_in_common() -> None:
    changed = start(MOVING, [3, 5], BROKERS, factor_may_change=False)
    assert changed == state([3, 5, 4, 1, 2], [1, 2], adding=[3, 5], removing=[4, 1, 2])


@pytest.mark.parametrize(
    ("target", "factor_may_change", "code"),
    [
        ([], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([3, 3], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([3, 9], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([3], False, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([3, 4, 5], False, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_targets_that_kafka_refuses(target: list[int], factor_may_change: bool, code: ErrorCode) -> None:
    for value in (state([1, 2], [1, 2]), MOVING):
        with pytest.raises(RequestError) as refused:
            start(value, target, BROKERS, factor_may_change=factor_may_change)
        assert refused.value.code is code


@pytest.mark.parametrize(
    ("value", "after"),
    [
        (state([1, 2], [1]), state([1, 2], [1])),
        # A target is not in sync yet, or has died.
        (MOVING, MOVING),
        (
            state([3, 4, 1, 2], [1, 2, 3], adding=[3, 4], removing=[1, 2]),
            state([3, 4, 1, 2], [1, 2, 3], adding=[3, 4], removing=[1, 2]),
        ),
        (
            state([3, 4, 1, 2], [1, 2, 3, 4], adding=[3, 4], removing=[1, 2]),
            state([3, 4], [3, 4]),
        ),
        # More replicas.
        (state([1, 2, 3], [1, 3], adding=[3]), state([1, 2, 3], [1, 3])),
        # Fewer: all that stay must be in sync.
        (state([1, 2, 3], [1, 3], removing=[3]), state([1, 2, 3], [1, 3], removing=[3])),
        (state([1, 2, 3], [1, 2, 3], removing=[3]), state([1, 2], [1, 2])),
        # Nobody who stays is in sync.
        (state([2, 1], [1], removing=[1]), state([2, 1], [1], removing=[1])),
        # A replica that leaves leaves the ELR too.
        (state([1, 3, 2], [1, 3], adding=[3], removing=[2], elr=[2]), state([1, 3], [1, 3])),
    ],
)
def test_it_is_completed_when_what_was_added_is_in_sync(value: PartitionValue, after: PartitionValue) -> None:
    assert completed(value) == after


def test_a_completion_elects_a_leader_among_those_that_stay() -> None:
    value = state([3, 4, 1, 2], [1, 2, 3, 4], adding=[3, 4], removing=[1, 2])
    assert settled(value, BROKERS, RULES) == state([3, 4], [3, 4], leader=3, epoch=6)


def test_a_completion_has_a_new_epoch_also_if_the_leader_stays() -> None:
    value = state([1, 3, 2], [1, 2, 3], adding=[3], removing=[2])
    assert settled(value, BROKERS, RULES) == state([1, 3], [1, 3], epoch=6)


def test_another_order_of_the_replicas_is_done_at_once_without_an_election() -> None:
    value = state([1, 2], [1, 2])
    wanted = start(value, [2, 1], BROKERS, factor_may_change=False)
    assert settled_from(value, wanted, BROKERS, RULES) == state([2, 1], [1, 2])


def test_a_cancellation_drops_what_was_added() -> None:
    value = state([3, 4, 1, 2], [1, 3], adding=[3, 4], removing=[1, 2])
    assert cancelled(value, RULES) == state([1, 2], [1])
    assert settled_from(value, cancelled(value, RULES), BROKERS, RULES) == state([1, 2], [1], epoch=6)


def test_a_cancellation_elects_a_leader_if_the_leader_was_added() -> None:
    value = state([3, 1, 2], [3, 2], leader=3, adding=[3], removing=[1])
    assert settled_from(value, cancelled(value, RULES), BROKERS, RULES) == state(
        [1, 2], [2], leader=2, epoch=6
    )


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (state([1, 2], [1, 2]), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (
            state([3, 1], [3], leader=3, adding=[3], removing=[1]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_cancellations_that_are_refused(value: PartitionValue, code: ErrorCode) -> None:
    with pytest.raises(RequestError) as refused:
        cancelled(value, RULES)
    assert refused.value.code is code


def test_a_cancellation_may_be_unclean_where_that_is_allowed() -> None:
    value = state([3, 1, 2], [3], leader=3, adding=[3], removing=[1])
    rules = ElectionRules(min_isr=1, allows_unclean=True)
    assert settled_from(value, cancelled(value, rules), BROKERS, rules) == state(
        [1, 2], [1], leader=1, epoch=6
    )
