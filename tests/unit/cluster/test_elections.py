"""The next state of a partition: one case for each rule."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from flintmq.cluster.elections import (
    Election,
    ElectionRules,
    check_election,
    controlled_change,
    isr_change,
    next_state,
    resignation,
)
from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata import keys
from flintmq.metadata.image import BrokerImage, PartitionImage
from flintmq.metadata.keys import BrokerValue, PartitionValue

RULES = ElectionRules(min_isr=1, allows_unclean=False)
MIN_2 = ElectionRules(min_isr=2, allows_unclean=False)
UNCLEAN = ElectionRules(min_isr=1, allows_unclean=True)


def brokers(**registered: tuple[int, int] | tuple[int, int, bool] | int) -> dict[int, BrokerImage]:
    """`b1=10` is broker 1 with epoch 10; `b1=(12, 10)` has kept its logs since 10; a third entry: it shuts down."""
    found = {}
    for name, given in registered.items():
        epoch, since, draining = (given, 0, False) if isinstance(given, int) else (*given, False)[:3]
        value = BrokerValue(incarnation="i", clean_since=since)
        found[int(name[1:])] = BrokerImage(int(name[1:]), epoch, value, draining)
    return found


def state(
    leader: int,
    isr: dict[int, int],
    elr: dict[int, int] | None = None,
    *,
    epoch: int = 5,
    replicas: tuple[int, ...] = (1, 2, 3),
    last: tuple[int, ...] = (),
) -> PartitionValue:
    elr = elr or {}
    return PartitionValue(
        leader=leader,
        epoch=epoch,
        replicas=list(replicas),
        isr=list(isr),
        isr_epochs=list(isr.values()),
        elr=list(elr),
        elr_epochs=list(elr.values()),
        last_known_elr=list(last),
    )


ALL = brokers(b1=10, b2=20, b3=30)
ISR = {1: 10, 2: 20, 3: 30}


class Case(NamedTuple):
    before: PartitionValue
    brokers: dict[int, BrokerImage]
    after: PartitionValue
    rules: ElectionRules = RULES
    election: Election = Election.ONLINE


CASES = {
    "nothing happens": Case(state(1, ISR), ALL, state(1, ISR)),
    "a follower that died leaves the ISR": Case(
        state(1, ISR), brokers(b1=10, b3=30), state(1, {1: 10, 3: 30})
    ),
    "a follower that registered again leaves the ISR": Case(
        state(1, ISR), brokers(b1=10, b2=(25, 20), b3=30), state(1, {1: 10, 3: 30})
    ),
    "under min.insync.replicas it enters the ELR": Case(
        state(1, {1: 10, 2: 20}), brokers(b1=10, b3=30), state(1, {1: 10}, {2: 20}), MIN_2
    ),
    "after an unclean restart it does not": Case(
        state(1, {1: 10, 2: 20}), brokers(b1=10, b2=25), state(1, {1: 10}), MIN_2
    ),
    "an unclean restart removes it from the ELR": Case(
        state(1, {1: 10}, {2: 20}), brokers(b1=10, b2=25), state(1, {1: 10}), MIN_2
    ),
    "one that is away stays in the ELR": Case(
        state(1, {1: 10}, {2: 20}), brokers(b1=10), state(1, {1: 10}, {2: 20}), MIN_2
    ),
    "the ELR is emptied when the ISR is large enough": Case(
        state(1, {1: 10, 3: 30}, {2: 20}), ALL, state(1, {1: 10, 3: 30}), MIN_2
    ),
    "more than there are replicas cannot be required": Case(
        state(1, {1: 10, 2: 20}, replicas=(1, 2)),
        brokers(b1=10, b2=20),
        state(1, {1: 10, 2: 20}, replicas=(1, 2)),
        ElectionRules(5, allows_unclean=False),
    ),
    "the first replica in the ISR follows a leader that died": Case(
        state(1, {1: 10, 3: 30, 2: 20}), brokers(b2=20, b3=30), state(2, {3: 30, 2: 20}, epoch=6)
    ),
    "a leader that registered again is not elected while others are in sync": Case(
        state(1, ISR), brokers(b1=(15, 10), b2=20, b3=30), state(2, {2: 20, 3: 30}, epoch=6)
    ),
    "the only one in sync that registered again is elected, with a new epoch": Case(
        state(1, {1: 10}), brokers(b1=(15, 10), b2=20), state(1, {1: 15}, epoch=6)
    ),
    "no leader if the only one in sync lost power": Case(
        state(1, {1: 10}), brokers(b1=15, b2=20), state(-1, {}, epoch=6, last=(1,))
    ),
    "no leader if nobody in sync is there": Case(
        state(1, {1: 10, 2: 20}), brokers(b3=30), state(-1, {}, {1: 10, 2: 20}, epoch=6, last=(1,))
    ),
    "without a leader nothing more happens": Case(
        state(-1, {}, {1: 10, 2: 20}, last=(1,)), brokers(b3=30), state(-1, {}, {1: 10, 2: 20}, last=(1,))
    ),
    "a member of the ELR is elected when the ISR is empty": Case(
        state(-1, {}, {1: 10, 2: 20}, last=(1,)),
        brokers(b2=(25, 20), b3=30),
        state(2, {2: 25}, epoch=6),
    ),
    "and the rest of the ELR stays while there are too few": Case(
        state(-1, {}, {1: 10, 2: 20}), brokers(b2=(25, 20)), state(2, {2: 25}, {1: 10}, epoch=6), MIN_2
    ),
    "a member of the ELR that lost power is not elected": Case(
        state(-1, {}, {2: 20}), brokers(b2=25, b3=30), state(-1, {})
    ),
    "the ELR is not asked while somebody is in sync": Case(
        state(3, {3: 30}, {1: 10}), ALL, state(3, {3: 30}, {1: 10}), MIN_2
    ),
    "an unclean election where it is allowed: the last leader": Case(
        state(-1, {}, {1: 10}, last=(3,)), brokers(b2=20, b3=35), state(3, {3: 35}, epoch=6), UNCLEAN
    ),
    "else any replica": Case(
        state(1, {1: 10}, {3: 30}), brokers(b2=20), state(2, {2: 20}, epoch=6), UNCLEAN
    ),
    "an unclean election where it is asked for": Case(
        state(-1, {}, {1: 10}), brokers(b2=20), state(2, {2: 20}, epoch=6), RULES, Election.UNCLEAN
    ),
    "no unclean election while a clean one is possible": Case(
        state(1, ISR), brokers(b3=30), state(3, {3: 30}, epoch=6), UNCLEAN, Election.UNCLEAN
    ),
    "the only replica leads whatever it has lost": Case(
        state(1, {1: 10}, replicas=(1,)), brokers(b1=15), state(1, {1: 15}, epoch=6, replicas=(1,))
    ),
    "but not before it is back": Case(
        state(1, {1: 10}, replicas=(1,)),
        brokers(b2=20),
        state(-1, {}, {1: 10}, epoch=6, replicas=(1,), last=(1,)),
    ),
    "the preferred leader, if it is in sync": Case(
        state(2, ISR), ALL, state(1, ISR, epoch=6), RULES, Election.PREFERRED
    ),
    "not if it is not in sync": Case(
        state(2, {2: 20}), ALL, state(2, {2: 20}), RULES, Election.PREFERRED
    ),
    "a leader that shuts down is replaced and leaves the ISR": Case(
        state(1, ISR), brokers(b1=(10, 10, True), b2=20, b3=30), state(2, {2: 20, 3: 30}, epoch=6)
    ),
    "it goes on if nobody else is in sync": Case(
        state(1, {1: 10}), brokers(b1=(10, 10, True), b2=20), state(1, {1: 10})
    ),
    "a follower that shuts down leaves the ISR": Case(
        state(1, ISR), brokers(b1=10, b2=(20, 20, True), b3=30), state(1, {1: 10, 3: 30})
    ),
    "one that shuts down is not preferred": Case(
        state(2, ISR),
        brokers(b1=(10, 10, True), b2=20, b3=30),
        state(2, {2: 20, 3: 30}),
        RULES,
        Election.PREFERRED,
    ),
    "one that shuts down leads rather than nobody": Case(
        state(1, {1: 10, 2: 20}), brokers(b2=(20, 20, True), b3=30), state(2, {2: 20}, epoch=6), UNCLEAN
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_next_state(name: str) -> None:
    case = CASES[name]
    after = next_state(case.before, case.brokers, case.rules, case.election)
    assert after == case.after
    again = next_state(after, case.brokers, case.rules)
    assert again == after, "a state that was decided on stays"


def test_a_state_without_epochs_makes_nobody_eligible() -> None:
    value = PartitionValue(leader=1, epoch=5, replicas=[1, 2], isr=[1, 2])
    assert next_state(value, ALL, RULES).leader == -1


KEY = "/p/t/0"


def change(
    value: PartitionValue,
    isr: dict[int, int],
    registered: dict[int, BrokerImage] = ALL,
    rules: ElectionRules = RULES,
    *,
    node_id: int = 1,
    broker_epoch: int = 10,
) -> tuple[PartitionValue, dict[str, int]]:
    made = isr_change(
        KEY,
        PartitionImage(value, 99),
        isr,
        node_id=node_id,
        broker_epoch=broker_epoch,
        brokers=registered,
        rules=rules,
    )
    put = made.writes[KEY]
    assert put is not None
    assert keys.decode_partition(put.value) == made.value
    return made.value, made.expect


def test_a_leader_expands_its_isr_and_expects_the_registrations_of_all_members() -> None:
    value, expect = change(state(1, {1: 10}), {1: 10, 3: 30})
    assert value == state(1, {1: 10, 3: 30})
    assert expect == {KEY: 99, keys.broker(1): 10, keys.broker(3): 30}


def test_a_leader_shrinks_its_isr_into_the_elr() -> None:
    value, _ = change(state(1, {1: 10, 2: 20}), {1: 10}, rules=MIN_2)
    assert value == state(1, {1: 10}, {2: 20})


def test_an_expansion_to_enough_members_empties_the_elr() -> None:
    value, _ = change(state(1, {1: 10}, {2: 20}), {1: 10, 3: 30}, rules=MIN_2)
    assert value == state(1, {1: 10, 3: 30})


def test_a_lowered_min_isr_empties_the_elr_with_the_same_isr() -> None:
    value, _ = change(state(1, {1: 10}, {2: 20}), {1: 10})
    assert value == state(1, {1: 10})


def test_a_follower_that_registered_again_and_caught_up_stays_with_its_new_epoch() -> None:
    registered = brokers(b1=10, b2=(25, 20))
    value, _ = change(state(1, {1: 10, 2: 20}), {1: 10, 2: 25}, registered)
    assert value == state(1, {1: 10, 2: 25})


@pytest.mark.parametrize(
    ("value", "isr", "registered", "node", "code"),
    [
        (state(2, ISR), ISR, ALL, (1, 10), ErrorCode.FENCED_LEADER_EPOCH),
        # It has registered again since it was elected.
        (state(1, ISR), ISR, brokers(b1=15, b2=20, b3=30), (1, 15), ErrorCode.FENCED_LEADER_EPOCH),
        (state(1, ISR), {2: 20}, ALL, (1, 10), ErrorCode.INVALID_REQUEST),
        (state(1, ISR), {**ISR, 4: 40}, brokers(b1=10, b2=20, b3=30, b4=40), (1, 10), ErrorCode.INVALID_REQUEST),
        # Fetches of an earlier life prove nothing (KIP-903).
        (state(1, {1: 10}), {1: 10, 2: 20}, brokers(b1=10, b2=25), (1, 10), ErrorCode.INELIGIBLE_REPLICA),
        (state(1, {1: 10}), {1: 10, 2: 20}, brokers(b1=10), (1, 10), ErrorCode.INELIGIBLE_REPLICA),
        # A zombie's registration is gone.
        (state(1, ISR), {1: 10, 2: 20}, brokers(b2=20), (1, 10), ErrorCode.INELIGIBLE_REPLICA),
        (
            state(1, {1: 10}),
            {1: 10, 2: 20},
            brokers(b1=10, b2=(20, 20, True)),
            (1, 10),
            ErrorCode.INELIGIBLE_REPLICA,
        ),
    ],
)  # fmt: skip
def test_an_isr_that_may_not_be_is_refused(
    value: PartitionValue,
    isr: dict[int, int],
    registered: dict[int, BrokerImage],
    node: tuple[int, int],
    code: ErrorCode,
) -> None:
    with pytest.raises(RequestError) as refused:
        change(value, isr, registered, node_id=node[0], broker_epoch=node[1])
    assert refused.value.code is code


def test_a_controllers_change_expects_its_key_the_partition_and_the_leader_that_it_elects() -> None:
    before = PartitionImage(state(1, ISR), 99)
    elected = controlled_change(KEY, before, state(2, ISR, epoch=6), ALL, controller_revision=7)
    assert elected.expect == {keys.CONTROLLER: 7, KEY: 99, keys.broker(2): 20}
    shrunk = controlled_change(KEY, before, state(1, {1: 10}), ALL, controller_revision=7)
    assert shrunk.expect == {keys.CONTROLLER: 7, KEY: 99}
    nobody = controlled_change(KEY, before, state(-1, {}, epoch=6), ALL, controller_revision=7)
    assert nobody.expect == {keys.CONTROLLER: 7, KEY: 99}


@pytest.mark.parametrize(
    ("before", "after", "election", "code"),
    [
        (state(1, ISR), state(1, ISR), Election.PREFERRED, ErrorCode.ELECTION_NOT_NEEDED),
        (state(1, ISR), state(1, ISR), Election.UNCLEAN, ErrorCode.ELECTION_NOT_NEEDED),
        (state(2, ISR), state(2, ISR), Election.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (state(-1, {}), state(-1, {}), Election.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        (state(-1, {}), state(-1, {}), Election.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (state(1, ISR), state(-1, {}, epoch=6), Election.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        (state(2, ISR), state(1, ISR, epoch=6), Election.PREFERRED, None),
    ],
)
def test_an_election_that_was_asked_for_has_kafkas_errors(
    before: PartitionValue, after: PartitionValue, election: Election, code: ErrorCode | None
) -> None:
    if code is None:
        check_election(before, after, election)
        return
    with pytest.raises(RequestError) as refused:
        check_election(before, after, election)
    assert refused.value.code is code


def test_a_state_without_what_a_cluster_adds_is_short() -> None:
    assert keys.encode(replace(state(1, {1: 10}, replicas=(1,)), isr_epochs=[])) == (
        b'{"leader":1,"epoch":5,"replicas":[1],"isr":[1]}'
    )


def test_a_leader_whose_log_has_failed_gives_way_to_a_member_of_its_isr() -> None:
    """It leaves ISR and ELR, and the transaction expects the registrations of those that stay."""
    image = PartitionImage(state(1, {1: 10, 2: 20, 3: 30}), 7)
    change = resignation("/p", image, node_id=1, broker_epoch=10, brokers=ALL, rules=MIN_2)
    assert change is not None
    assert change.value == state(2, {2: 20, 3: 30}, epoch=6)
    assert change.expect == {"/p": 7, keys.broker(2): 20, keys.broker(3): 30}


def test_a_leader_whose_log_has_failed_is_not_eligible_in_a_small_isr() -> None:
    image = PartitionImage(state(1, {1: 10, 2: 20}), 7)
    change = resignation("/p", image, node_id=1, broker_epoch=10, brokers=ALL, rules=MIN_2)
    assert change is not None
    assert change.value == state(2, {2: 20}, epoch=6)


def test_a_leader_that_is_alone_does_not_give_way() -> None:
    """Nobody else holds everything; the same for one that was replaced, or whose followers have restarted."""
    alone = PartitionImage(state(1, {1: 10}, {2: 20}), 7)
    replaced = PartitionImage(state(2, {2: 20, 3: 30}), 7)
    restarted = PartitionImage(state(1, {1: 10, 2: 19}), 7)
    for image in (alone, replaced, restarted):
        assert resignation("/p", image, node_id=1, broker_epoch=10, brokers=ALL, rules=MIN_2) is None
