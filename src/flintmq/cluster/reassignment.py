"""Moving a partition to other brokers (KIP-455): the states from the request to the end. Pure.

    start      the replicas are the target and those that leave; `adding` and `removing` say which
    completed  every replica that was added is in the ISR: those that leave are dropped
    cancelled  what was added is dropped

Nothing is dropped before enough others are in sync. A target that dies keeps the reassignment waiting until it is
back or the reassignment is cancelled or changed; a topic that is deleted takes its reassignments with it. A change of
the replication factor is a reassignment to more or fewer brokers (KIP-860).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from flintmq.cluster.elections import (
    NO_LEADER,
    Brokers,
    Election,
    ElectionRules,
    eligible_leader_replicas,
    in_sync,
    next_state,
)
from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata.keys import PartitionValue


def is_reassigning(value: PartitionValue) -> bool:
    return bool(value.adding or value.removing)


def target_of(value: PartitionValue) -> list[int]:
    """Return the replicas that the partition has, or will have when its reassignment is complete."""
    return [node for node in value.replicas if node not in value.removing]


def start(
    value: PartitionValue, target: Sequence[int], brokers: Brokers, *, factor_may_change: bool
) -> PartitionValue:
    """Return the state in which the partition moves to `target`, in place of an earlier reassignment.

    RequestError for a target that Kafka refuses: empty, with a broker twice, or with one that is not registered.
    """
    if not target or len(set(target)) != len(target) or any(node not in brokers for node in target):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"A partition needs distinct brokers that are registered; {list(target)} was asked for.",
        )
    factor = len(target_of(value))
    if len(target) != factor and not factor_may_change:
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor would change from {factor} to {len(target)}.",
        )
    removing = [node for node in value.replicas if node not in target]
    # What an earlier reassignment has added and this one keeps is not a replica that a cancellation restores.
    adding = [node for node in target if node not in value.replicas or node in value.adding]
    return replace(value, replicas=[*target, *removing], adding=adding, removing=removing)


def completed(value: PartitionValue) -> PartitionValue:
    """Return the state after the reassignment if it can be completed now, else an equal one.

    All replicas that were added are in the ISR, and of those that stay at least one. If the replication factor
    falls, all that stay must be: otherwise the ISR would become smaller than it need be.
    """
    if not is_reassigning(value):
        return value
    replicas = target_of(value)
    isr = {node: epoch for node, epoch in in_sync(value).items() if node not in value.removing}
    if not isr or any(node not in isr for node in value.adding):
        return value
    if len(value.adding) < len(value.removing) and any(node not in isr for node in replicas):
        return value
    return _on(value, replicas, isr)


def cancelled(value: PartitionValue, rules: ElectionRules) -> PartitionValue:
    """Return the state with the replicas from before the reassignment.

    RequestError if there is none, or if only replicas that were added hold everything that is committed and unclean
    elections are not allowed.
    """
    if not is_reassigning(value):
        raise RequestError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No reassignment is in progress.")
    replicas = [node for node in value.replicas if node not in value.adding]
    isr = {node: epoch for node, epoch in in_sync(value).items() if node in replicas}
    elr = [node for node in value.elr if node in replicas]
    if not replicas or not (isr or elr or rules.allows_unclean):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The reassignment cannot be cancelled: that would need an unclean election of a leader.",
        )
    return _on(value, replicas, isr)


def _on(value: PartitionValue, replicas: list[int], isr: Mapping[int, int]) -> PartitionValue:
    """Return the state on these replicas only. Its leader may be none of them: `settled` elects another."""
    elr = {node: epoch for node, epoch in eligible_leader_replicas(value).items() if node in replicas}
    return replace(
        value,
        replicas=replicas,
        isr=list(isr),
        isr_epochs=list(isr.values()),
        elr=list(elr),
        elr_epochs=list(elr.values()),
        adding=[],
        removing=[],
    )


def settled(
    value: PartitionValue, brokers: Brokers, rules: ElectionRules, election: Election = Election.ONLINE
) -> PartitionValue:
    """Return the state that the partition should have now, with its reassignment completed if that can be.

    The leader epoch grows if replicas were dropped, also where the leader stays: so that a replica that is not one
    any more is not taken for one in this epoch.
    """
    return settled_from(value, completed(value), brokers, rules, election)


def settled_from(
    before: PartitionValue,
    value: PartitionValue,
    brokers: Brokers,
    rules: ElectionRules,
    election: Election = Election.ONLINE,
) -> PartitionValue:
    """Return the state that follows from `value`, which was decided on in place of `before`."""
    after = next_state(completed(value), brokers, rules, election)
    dropped = any(node not in after.replicas for node in before.replicas)
    if dropped and after.epoch == before.epoch and after.leader != NO_LEADER:
        return replace(after, epoch=after.epoch + 1)
    return after
