"""One controller at a time keeps partitions in step with the brokers, whatever interrupts it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from flintmq.cluster.elections import Election, ElectionRules
from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata import keys
from flintmq.metadata.store import Put
from support.cluster.brokers import Cluster, run_cluster
from support.metadata.shared_store import Fault

ID, OTHER_ID = bytes(15) + b"\x07", bytes(15) + b"\x08"
UNCERTAIN = [Fault.LOST_REQUEST, Fault.LOST_RESPONSE, Fault.LATE]


def test_one_broker_is_the_controller_and_the_next_has_a_higher_epoch() -> None:
    async def scenario(cluster: Cluster) -> None:
        (first,) = cluster.controllers
        before = first.metadata.image.controller
        assert before is not None
        first.lose_lease()
        await cluster.settle()
        (second,) = cluster.controllers
        after = second.metadata.image.controller
        assert after is not None
        assert after.epoch == before.epoch + 1

    run_cluster(scenario)


def test_partitions_of_a_broker_that_died_are_led_by_others() -> None:
    async def scenario(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        placed = [[index % 3 + 1, (index + 1) % 3 + 1] for index in range(30)]
        await one.topics.create("t", ID, placed, {})
        dead = cluster.brokers.pop(3)
        await dead.close()
        await cluster.settle()
        for index, replicas in enumerate(placed):
            state = one.partition("t", index)
            assert state.leader == next(node for node in replicas if node != 3)
            assert state.isr == [node for node in replicas if node != 3]
            assert state.epoch == (1 if replicas[0] == 3 else 0)

    run_cluster(scenario)


def test_a_broker_that_registers_again_leads_in_a_new_epoch() -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = cluster.brokers[1], cluster.brokers[2]
        await one.topics.create("t", ID, [[2]], {})
        old = two.registration.epoch
        assert one.partition("t").is_led_by(2, old)
        two.lose_lease()
        await cluster.settle()
        state = one.partition("t")
        assert two.registration.epoch > old
        assert state.is_led_by(2, two.registration.epoch)
        assert not state.is_led_by(2, old)
        assert state.epoch == 2, "one for the loss of the leader, one for its return"
        assert two.saved == [old], "what it held it still holds"

    run_cluster(scenario)


@pytest.mark.parametrize("fault", [*UNCERTAIN, Fault.UNAVAILABLE])
@pytest.mark.parametrize("at", range(4))
def test_a_controller_survives_a_store_that_fails(fault: Fault, at: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        (controller,) = cluster.controllers
        others = [node for node in (1, 2, 3) if node != controller.node_id]
        await controller.topics.create("t", ID, [others] * 20, {})
        controller.store.faults.extend([*[Fault.NONE] * at, fault, fault])
        await cluster.brokers.pop(others[0]).close()
        await cluster.settle()
        for index in range(20):
            state = controller.partition("t", index)
            assert (state.leader, state.isr, state.epoch) == (others[1], [others[1]], 1)

    run_cluster(scenario)


@pytest.mark.parametrize("fault", UNCERTAIN)
def test_an_uncertain_takeover_has_one_controller(fault: Fault) -> None:
    async def scenario(cluster: Cluster) -> None:
        (first,) = cluster.controllers
        for broker in cluster.brokers.values():
            if broker is not first:
                broker.store.faults.append(fault)
        cluster.brokers.pop(first.node_id)
        await first.close()
        await cluster.settle()
        (second,) = cluster.controllers
        assert second.metadata.image.controller_epoch >= 2

    run_cluster(scenario)


def test_a_takeover_that_was_applied_without_an_answer_is_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flintmq.metadata.cluster_metadata.SETTLE_ATTEMPTS", 1)

    async def scenario(cluster: Cluster) -> None:
        (first,) = cluster.controllers
        cluster.brokers.pop(first.node_id)
        for broker in cluster.brokers.values():
            broker.store.faults.extend([Fault.LOST_RESPONSE, Fault.LOST_REQUEST])
        await first.close()
        await cluster.settle()
        assert len(cluster.controllers) == 1

    run_cluster(scenario)


def test_a_controller_that_was_replaced_in_mid_plan_changes_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        (paused,) = cluster.controllers
        others = [node for node in (1, 2, 3) if node != paused.node_id]
        await paused.topics.create("t", ID, [others] * 20, {})
        taken = asyncio.Event()

        def replace(expect: Mapping[str, int], writes: Mapping[str, Put | None]) -> None:
            """While its first change is on the way, another broker becomes the controller."""
            if keys.CONTROLLER in expect and keys.CONTROLLER not in writes and not taken.is_set():
                taken.set()
                value = keys.ControllerValue(node=others[1], epoch=9)
                cluster.shared.apply({}, {keys.CONTROLLER: Put(keys.encode(value))})

        paused.store.before_txn = replace
        await cluster.brokers.pop(others[0]).close()
        await cluster.settle()
        assert taken.is_set()
        assert not paused.controller.is_active
        assert [paused.partition("t", index).leader for index in range(20)] == [others[0]] * 20

    run_cluster(scenario)


def test_partitions_of_a_transaction_that_failed_are_looked_at_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        (controller,) = cluster.controllers
        others = [node for node in (1, 2, 3) if node != controller.node_id]
        await controller.topics.create("t", ID, [others] * 40, {})
        meddled: list[str] = []

        def meddle(expect: Mapping[str, int], writes: Mapping[str, Put | None]) -> None:
            """A leader changes one partition of each larger transaction while it is on the way."""
            mine = [key for key in writes if key.startswith(keys.PARTITIONS)]
            if len(mine) > 1 and len(meddled) < 3:
                meddled.append(mine[0])
                cluster.shared.apply({}, {mine[0]: Put(cluster.shared.keyspace.items[mine[0]].value)})

        controller.store.before_txn = meddle
        await cluster.brokers.pop(others[0]).close()
        await cluster.settle()
        assert len(meddled) == 3
        assert [controller.partition("t", index).leader for index in range(40)] == [others[1]] * 40

    run_cluster(scenario)


def test_an_election_expects_the_registration_of_the_elected() -> None:
    async def scenario(cluster: Cluster) -> None:
        (controller,) = cluster.controllers
        dead, heir = (node for node in (1, 2, 3) if node != controller.node_id)
        await controller.topics.create("t", ID, [[dead, heir]], {})
        old = cluster.brokers[heir].registration.epoch
        restarted = False

        def restart(expect: Mapping[str, int], writes: Mapping[str, Put | None]) -> None:
            nonlocal restarted
            if keys.partition(ID, 0) in writes and not restarted:
                restarted = True
                # It has lost what it held: its logs are kept since this registration only.
                value = keys.BrokerValue(incarnation="after the power loss")
                cluster.shared.apply({}, {keys.broker(heir): Put(keys.encode(value))})

        controller.store.before_txn = restart
        await cluster.brokers.pop(dead).close()
        await cluster.settle()
        state = controller.partition("t")
        assert restarted
        assert state.leader == -1
        assert heir not in (*state.isr, *state.value.elr)
        assert not state.is_led_by(heir, old)

    run_cluster(scenario)


def test_what_a_dead_broker_was_creating_is_removed_and_what_a_live_one_creates_is_not() -> None:
    async def scenario(cluster: Cluster) -> None:
        state = keys.PartitionValue(leader=1, epoch=0, replicas=[1], isr=[1])
        live = cluster.brokers[1].registration.epoch
        for topic_id, epoch in ((ID, live), (OTHER_ID, live - 1)):
            claim = keys.CreatingValue(name="t", node=1, broker_epoch=epoch)
            cluster.shared.apply({}, {keys.creating(topic_id): Put(keys.encode(claim))})
            for index in range(20):
                cluster.shared.apply({}, {keys.partition(topic_id, index): Put(keys.encode(state))})
        await cluster.settle()
        items = cluster.shared.keyspace.items
        assert keys.creating(ID) in items
        assert keys.creating(OTHER_ID) not in items
        assert [keys.partition(ID, index) in items for index in range(20)] == [True] * 20
        assert not any(keys.partition(OTHER_ID, index) in items for index in range(20))

    run_cluster(scenario)


def test_leaders_are_elected_and_partitions_moved_as_asked_for() -> None:
    async def scenario(cluster: Cluster) -> None:
        (controller,) = cluster.controllers
        (other, *_) = [broker for broker in cluster.brokers.values() if broker is not controller]
        await controller.topics.create("t", ID, [[1, 2]], {})
        with pytest.raises(RequestError) as refused:
            await other.controller.elect(ID, 0, Election.PREFERRED)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        with pytest.raises(RequestError) as needless:
            await controller.controller.elect(ID, 0, Election.PREFERRED)
        assert needless.value.code is ErrorCode.ELECTION_NOT_NEEDED
        await controller.controller.reassign(ID, 0, [2, 1], factor_may_change=False)
        assert controller.partition("t").replicas == [2, 1]
        await controller.controller.elect(ID, 0, Election.PREFERRED)
        assert (controller.partition("t").leader, controller.partition("t").epoch) == (2, 1)
        await controller.controller.reassign(ID, 0, [3, 1], factor_may_change=False)
        value = controller.partition("t").value
        assert (value.replicas, value.adding, value.removing) == ([3, 1, 2], [3], [2])
        await controller.controller.reassign(ID, 0, None, factor_may_change=False)
        assert controller.partition("t").replicas == [1, 2]
        with pytest.raises(RequestError) as missing:
            await controller.controller.reassign(ID, 1, [1], factor_may_change=True)
        assert missing.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run_cluster(scenario)


def test_preferred_leaders_lead_again_after_a_restart() -> None:
    async def scenario(cluster: Cluster) -> None:
        (controller,) = cluster.controllers
        (node, second) = [node for node in (1, 2, 3) if node != controller.node_id]
        await controller.topics.create("t", ID, [[node, second]] * 10, {})
        cluster.brokers[node].lose_lease()
        await cluster.settle()
        for index in range(10):
            state = controller.partition("t", index)
            assert state.leader == second
            epoch = cluster.brokers[node].registration.epoch
            value = keys.PartitionValue(
                leader=second,
                epoch=state.epoch,
                replicas=state.replicas,
                isr=[second, node],
                isr_epochs=[*state.value.isr_epochs, epoch],
            )
            cluster.shared.apply({}, {keys.partition(ID, index): Put(keys.encode(value))})
        await cluster.settle()
        controller.controller.prefer_leaders()
        await cluster.settle()
        assert [controller.partition("t", index).leader for index in range(10)] == [node] * 10

    run_cluster(scenario)


def test_a_lowered_min_isr_empties_the_elr() -> None:
    async def scenario(cluster: Cluster) -> None:
        (controller,) = cluster.controllers
        (node, second) = [node for node in (1, 2, 3) if node != controller.node_id]
        controller.rules = ElectionRules(min_isr=2, allows_unclean=False)
        await controller.topics.create("t", ID, [[node, second]], {})
        await cluster.brokers.pop(second).close()
        await cluster.settle()
        assert controller.partition("t").value.elr == [second]
        controller.rules = ElectionRules(min_isr=1, allows_unclean=False)
        await controller.metadata.write({keys.topic_config("t"): Put(b'{"min.insync.replicas":"1"}')})
        await cluster.settle()
        assert controller.partition("t").value.elr == []

    run_cluster(scenario)


class TickingClock:
    """Each look at it takes a millisecond."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 0.001
        return self._now

    def now_ms(self) -> int:
        return int(self._now * 1000)


def test_a_turn_of_the_loop_is_bounded() -> None:
    async def scenario(cluster: Cluster) -> None:
        (controller,) = cluster.controllers
        await controller.topics.create("t", ID, [[1, 2, 3]] * 200, {})
        await cluster.settle()
        controller.controller._clock = TickingClock()
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while not controller.controller.is_idle:
                turns += 1
                await asyncio.sleep(0)

        controller.controller._scan = controller.controller._everything()
        controller.controller._wake.set()
        await asyncio.wait_for(count_turns(), 5)
        assert turns > 200 / 5, "five partitions are looked at in one turn"

    run_cluster(scenario)
