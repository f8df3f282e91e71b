"""A broker id belongs to one process, and a registration comes back with another epoch."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata import keys
from support.cluster.brokers import TTL_S, Cluster, ControlledBroker, run_cluster
from support.metadata.shared_store import Fault

ID = bytes(15) + b"\x07"


def test_the_broker_epoch_is_the_revision_of_the_registration() -> None:
    async def scenario(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        assert one.registration.epoch == cluster.shared.keyspace.items[keys.broker(1)].revision
        assert one.saved == [one.registration.epoch]
        assert one.metadata.image.brokers[1].clean_since == one.registration.epoch

    run_cluster(scenario, count=1)


def test_a_second_process_with_the_id_of_a_live_one_is_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        epoch = cluster.brokers[1].registration.epoch
        second = ControlledBroker(1, cluster.shared.session(), cluster.loop.clock)
        began = cluster.loop.clock.monotonic()
        with pytest.raises(RequestError) as refused:
            await second.start()
        assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert cluster.loop.clock.monotonic() - began >= TTL_S
        assert cluster.shared.keyspace.items[keys.broker(1)].revision == epoch
        assert len(cluster.shared.leases) == 1, "no lease is left behind"
        await second.metadata.close()

    run_cluster(scenario, count=1)


def test_a_start_waits_until_the_registration_of_a_killed_process_has_expired() -> None:
    async def scenario(cluster: Cluster) -> None:
        killed = cluster.brokers.pop(1)
        lease = cluster.shared.leases[killed.registration.lease_id]
        killed.store.is_cut_off = True
        cluster.loop.call_later(TTL_S / 2, lease.expire)
        again = await cluster.start(1, clean_since=killed.saved[0])
        assert again.registration.epoch > killed.registration.epoch
        assert again.metadata.image.brokers[1].clean_since == killed.saved[0]
        await killed.controller.close()

    run_cluster(scenario, count=2)


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_RESPONSE, Fault.LATE, Fault.UNAVAILABLE])
def test_a_lost_lease_is_followed_by_another_registration(fault: Fault) -> None:
    async def scenario(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        first = one.registration.epoch
        one.store.faults.append(fault)
        one.lose_lease()
        await cluster.settle()
        found = cluster.shared.keyspace.items[keys.broker(1)]
        assert found.revision == one.registration.epoch > first
        assert found.lease == one.registration.lease_id
        assert one.metadata.image.brokers[1].clean_since == first

    run_cluster(scenario, count=1)


def test_a_broker_that_shuts_down_is_drained_when_others_lead() -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = cluster.brokers[1], cluster.brokers[2]
        await two.topics.create("shared", ID, [[1, 2]] * 10, {})
        await two.topics.create("alone", bytes(15) + b"\x08", [[1]], {})
        epoch = one.registration.epoch
        async with asyncio.timeout(TTL_S):
            await one.registration.drain()
        for index in range(10):
            state = two.partition("shared", index)
            assert (state.leader, state.isr) == (2, [2])
        assert two.partition("alone").leader == 1, "it leads until it is gone, rather than nobody"
        assert two.metadata.image.brokers[1].epoch == epoch
        assert two.metadata.image.brokers[1].is_draining
        await cluster.brokers.pop(1).close()
        await cluster.settle()
        assert two.partition("alone").leader == -1
        assert keys.draining(1) not in cluster.shared.keyspace.items

    run_cluster(scenario, count=2)
