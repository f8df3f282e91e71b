"""The leader of a partition and its replicas in sync: the next state of a partition, given the brokers. Pure.

Every decision is a function of what the store holds, so that a new controller decides the same. A member of the ISR
or the ELR is recorded with a broker epoch (`keys.PartitionValue`), and with the registrations that says everything:

- it is *current* if it is registered under the epoch recorded;
- it is *eligible* if it is registered, and its logs have been kept since the epoch recorded or longer. It holds
  everything that is committed, whether it has restarted or not; a broker that lost power is not eligible (KIP-966).

Invariants: an acknowledged record is in the log of every member of ISR and ELR, and only they are elected, except by
an unclean election. The leader epoch grows by one with each change of the leader and each election, and never falls.

The ELR holds what left the ISR while fewer than min.insync.replicas remain. That is safe because nothing is committed
from then on: a leader advances its high watermark only while its ISR is large enough *and its ELR is empty*. The
second condition is for min.insync.replicas that is lowered meanwhile: the next change of the partition empties the
ELR, and records are acknowledged only after that.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from msgspec.structs import replace

from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata import keys
from flintmq.metadata.image import BrokerImage, PartitionImage
from flintmq.metadata.keys import PartitionValue
from flintmq.metadata.store import Put

NO_LEADER: Final = -1

Brokers = Mapping[int, BrokerImage]


class Election(Enum):
    ONLINE = auto()
    """Keep the leader if it can lead, else elect another."""
    PREFERRED = auto()
    """Elect the first replica if it is in sync (KIP-460)."""
    UNCLEAN = auto()
    """Elect any replica if there is none that has everything: acknowledged records may be lost (KIP-460)."""


class ElectionRules(NamedTuple):
    """What a topic's configuration says."""

    min_isr: int
    """min.insync.replicas"""
    allows_unclean: bool
    """unclean.leader.election.enable"""


class StateChange(NamedTuple):
    """A transaction on one partition."""

    value: PartitionValue
    expect: dict[str, int]
    writes: dict[str, Put | None]


def is_current(node: int, recorded_epoch: int, brokers: Brokers) -> bool:
    broker = brokers.get(node)
    return broker is not None and broker.epoch == recorded_epoch


def is_eligible(node: int, recorded_epoch: int, brokers: Brokers) -> bool:
    broker = brokers.get(node)
    return broker is not None and broker.clean_since <= recorded_epoch


def has_lost_records(node: int, recorded_epoch: int, brokers: Brokers) -> bool:
    """Whether a replica came back after an unclean restart. One that is away may come back with everything."""
    return node in brokers and not is_eligible(node, recorded_epoch, brokers)


def in_sync(value: PartitionValue) -> dict[int, int]:
    """Return the broker epochs recorded for the members of the ISR, in their order."""
    return _recorded(value.isr, value.isr_epochs)


def eligible_leader_replicas(value: PartitionValue) -> dict[int, int]:
    """Return the broker epochs recorded for the members of the ELR, in their order."""
    return _recorded(value.elr, value.elr_epochs)


def _recorded(members: list[int], epochs: list[int]) -> dict[int, int]:
    # A standalone broker records no epochs: in a cluster, its values make no replica eligible.
    return dict(zip(members, epochs or [0] * len(members), strict=True))


# ---- the controller


def next_state(
    value: PartitionValue, brokers: Brokers, rules: ElectionRules, election: Election = Election.ONLINE
) -> PartitionValue:
    """Return the state that the partition should have now; an equal one if nothing is to be done.

    Members of the ISR that are not current leave it, as do those that shut down; the leader stays while it is
    current. Otherwise one is elected: from the ISR in the order of the replicas, if that is empty from the ELR, and
    uncleanly where that is allowed or asked for. A broker that shuts down leads only where no other can.
    """
    current = {node: epoch for node, epoch in in_sync(value).items() if is_current(node, epoch, brokers)}
    leader = _clean_leader(value, current, brokers, election)
    if leader is None and (rules.allows_unclean or election is Election.UNCLEAN or len(value.replicas) == 1):
        unclean = _unclean_leader(value, brokers, rules, election)
        if unclean is not None:
            return _elected_uncleanly(value, unclean, brokers)
    if leader is None:
        return _with_members(value, current, brokers, rules, leader=NO_LEADER)
    if leader in current:
        isr = {
            node: epoch for node, epoch in current.items() if node == leader or not brokers[node].is_draining
        }
    else:
        isr = {leader: brokers[leader].epoch}
    return _with_members(value, isr, brokers, rules, leader=leader)


def _clean_leader(
    value: PartitionValue, current: Mapping[int, int], brokers: Brokers, election: Election
) -> int | None:
    """Return the leader, or the one to elect, of those that hold everything that is committed."""
    first = value.replicas[:1] if election is Election.PREFERRED else []
    candidates = [
        node for node in dict.fromkeys([*first, value.leader, *value.replicas]) if node in value.replicas
    ]
    if not current:
        held = {**eligible_leader_replicas(value), **in_sync(value)}
        candidates = [node for node in candidates if node in held and is_eligible(node, held[node], brokers)]
    else:
        candidates = [node for node in candidates if node in current]
    # Those that shut down come last: they lead only where no other replica can.
    candidates.sort(key=lambda node: brokers[node].is_draining)
    return candidates[0] if candidates else None


def _unclean_leader(
    value: PartitionValue, brokers: Brokers, rules: ElectionRules, election: Election
) -> int | None:
    """Return the replica that most likely has most: the last leader, else the first replica that is there.

    The only replica of a partition is elected whatever it has lost, once it has come back, even where unclean
    elections are not allowed: no other will ever have more.
    """
    held = {**eligible_leader_replicas(value), **in_sync(value)}
    if not (rules.allows_unclean or election is Election.UNCLEAN) and any(
        not has_lost_records(node, epoch, brokers) for node, epoch in held.items()
    ):
        return None
    last = [value.leader] if value.leader != NO_LEADER else value.last_known_elr
    candidates = [node for node in (*last, *value.replicas) if node in value.replicas and node in brokers]
    candidates.sort(key=lambda node: brokers[node].is_draining)
    return candidates[0] if candidates else None


def _elected_uncleanly(value: PartitionValue, leader: int, brokers: Brokers) -> PartitionValue:
    """The others may hold other records than the leader: only the leader itself is in sync."""
    return replace(
        value,
        leader=leader,
        epoch=value.epoch + 1,
        isr=[leader],
        isr_epochs=[brokers[leader].epoch],
        elr=[],
        elr_epochs=[],
        last_known_elr=[],
    )


def _with_members(
    value: PartitionValue, isr: Mapping[int, int], brokers: Brokers, rules: ElectionRules, *, leader: int
) -> PartitionValue:
    """Return the state with this leader and ISR; the ELR follows from them."""
    recorded = in_sync(value)
    was_elected = leader != value.leader or (leader != NO_LEADER and recorded.get(leader) != isr[leader])
    elr: dict[int, int] = {}
    if len(isr) < min(rules.min_isr, len(value.replicas)):
        held = {**eligible_leader_replicas(value), **recorded}
        elr = {
            node: epoch
            for node, epoch in held.items()
            if node not in isr and node in value.replicas and not has_lost_records(node, epoch, brokers)
        }
    if leader != NO_LEADER:
        last_known = []
    elif value.leader != NO_LEADER:
        last_known = value.last_known_elr or [value.leader]
    else:
        last_known = value.last_known_elr
    return replace(
        value,
        leader=leader,
        epoch=value.epoch + 1 if was_elected else value.epoch,
        isr=list(isr),
        isr_epochs=list(isr.values()),
        elr=list(elr),
        elr_epochs=list(elr.values()),
        last_known_elr=last_known,
    )


def controlled_change(
    key: str, state: PartitionImage, value: PartitionValue, brokers: Brokers, *, controller_revision: int
) -> StateChange:
    """Return the transaction with which a controller changes a partition.

    ORDER: it expects its own key, so that a controller that was replaced changes nothing, and the registration of the
    leader that it elects: one that has restarted meanwhile may have lost what it was elected for.
    """
    expect = {keys.CONTROLLER: controller_revision, key: state.revision}
    if value.leader != NO_LEADER and value.epoch != state.epoch:
        expect[keys.broker(value.leader)] = brokers[value.leader].epoch
    return StateChange(value, expect, {key: Put(keys.encode(value))})


def check_election(value: PartitionValue, result: PartitionValue, election: Election) -> None:
    """Raise the error that Kafka has for an election that was asked for and changes no leader (KIP-460)."""
    if result.leader != value.leader or result.epoch != value.epoch:
        if result.leader == NO_LEADER:
            raise RequestError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
                if election is Election.UNCLEAN
                else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            )
        return
    if election is Election.PREFERRED and value.leader != value.replicas[0]:
        raise RequestError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    if value.leader == NO_LEADER:
        raise RequestError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    raise RequestError(ErrorCode.ELECTION_NOT_NEEDED)


# ---- the leader


def isr_change(
    key: str,
    state: PartitionImage,
    isr: Mapping[int, int],
    *,
    node_id: int,
    broker_epoch: int,
    brokers: Brokers,
    rules: ElectionRules,
) -> StateChange:
    """Return the transaction with which a leader changes its ISR (KIP-497), or RequestError as AlterPartition has it.

    `isr` has the broker epoch of each member: the one recorded for a member that stays, and for one that joins the
    epoch in the fetches with which it caught up (KIP-903). The transaction expects the registrations of all members:
    what a follower has shown is worth nothing if it has restarted since. The ELR is emptied once the ISR is large
    enough, also by a change that leaves the ISR as it is.
    """
    value = state.value
    if not state.is_led_by(node_id, broker_epoch):
        raise RequestError(ErrorCode.FENCED_LEADER_EPOCH, "This broker does not lead the partition.")
    if node_id not in isr or any(node not in value.replicas for node in isr):
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"The ISR {sorted(isr)} needs its leader, {node_id}, and only replicas of {value.replicas}.",
        )
    before = in_sync(value)
    for node, epoch in isr.items():
        if not is_current(node, epoch, brokers):
            raise RequestError(
                ErrorCode.INELIGIBLE_REPLICA, f"Broker {node} is not registered with epoch {epoch}."
            )
        if brokers[node].is_draining and before.get(node) != epoch:
            raise RequestError(ErrorCode.INELIGIBLE_REPLICA, f"Broker {node} is shutting down.")
    changed = _with_members(value, isr, brokers, rules, leader=node_id)
    expect = {key: state.revision, **{keys.broker(node): epoch for node, epoch in isr.items()}}
    return StateChange(changed, expect, {key: Put(keys.encode(changed))})


def resignation(
    key: str,
    state: PartitionImage,
    *,
    node_id: int,
    broker_epoch: int,
    brokers: Brokers,
    rules: ElectionRules,
) -> StateChange | None:
    """Return the transaction with which a leader whose log has failed gives way to another member of its ISR.

    None if there is no other: nobody else holds everything. The leader leaves ISR and ELR, since what a failed disk
    holds is not known. The transaction expects the registrations of all members, as every change of a leader does.
    """
    value = state.value
    if not state.is_led_by(node_id, broker_epoch):
        return None
    isr = {
        node: epoch
        for node, epoch in in_sync(value).items()
        if node != node_id and is_current(node, epoch, brokers)
    }
    candidates = [node for node in value.replicas if node in isr]
    if not candidates:
        return None
    candidates.sort(key=lambda node: brokers[node].is_draining)
    changed = _with_members(value, isr, brokers, rules, leader=candidates[0])
    elr = {node: epoch for node, epoch in eligible_leader_replicas(changed).items() if node != node_id}
    changed = replace(changed, elr=list(elr), elr_epochs=list(elr.values()))
    expect = {key: state.revision, **{keys.broker(node): epoch for node, epoch in isr.items()}}
    return StateChange(changed, expect, {key: Put(keys.encode(changed))})
