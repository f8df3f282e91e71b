"""What leaders acknowledge while their ISR and role change, on topics that leave syncing to the machine (S1, S3).

Without `flush.messages=1` no flush comes along later that would put a forgotten high watermark right.
"""

from __future__ import annotations

import asyncio

import pytest

from flintmq.cluster.peers import read_response, request_frame
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from flintmq.records.record import build_batch
from flintmq.settings.kinds import LONG_MAX
from flintmq.testing.simulation.client import WorldClient
from flintmq.testing.simulation.server_end import IN_FLIGHT_MAX
from flintmq.testing.simulation.transactional_client import TransactionalWorldProducer
from support.simulation.replicated_topic import NODES, TOPIC, ReplicatedTopic, between, to_store

UNSYNCED = {"flush.messages": str(LONG_MAX)}
ALONE = {**UNSYNCED, "min.insync.replicas": "1"}
_FETCH, _PRODUCE, _DELETE_TOPICS = 12, 12, 6


def alone_leads(cluster: ReplicatedTopic) -> None:
    """Let the followers die, until the leader is alone in its ISR."""
    cluster.send("a")
    cluster.wait_until_in_sync()
    for node in (2, 3):
        cluster.brokers[node].kill()
    cluster.wait(lambda: cluster.isr == [1])
    cluster.wait(lambda: cluster.partition(1).isr == [1])
    cluster.send("b")


def test_a_proposed_member_counts_for_a_leader_that_was_alone() -> None:
    """The follower may be in the ISR already, and be elected (KIP-497)."""
    with ReplicatedTopic(configs=ALONE) as cluster:
        alone_leads(cluster)
        cluster.brokers[2].start()
        while cluster.isr == [1]:
            cluster.world.step()
        # The store has committed the change; the leader has not heard of it.
        assert cluster.partition(1).isr == [1]
        cluster.block((*between(1, 2), *to_store(1)))
        assert cluster.result(cluster.produce_to(1, "lost")) is not ErrorCode.NONE
        cluster.brokers[1].kill()
        cluster.wait(lambda: cluster.leader == 2)
        assert cluster.read() == ["a", "b"]


def test_a_leader_that_has_shrunk_its_isr_to_itself_goes_on() -> None:
    with ReplicatedTopic(configs=ALONE) as cluster:
        cluster.send("a")
        cluster.wait_until_in_sync()
        cluster.block(between(1, 2, 3))
        cluster.spawn(cluster.produce_to(1, "b", acks=1))
        cluster.wait(lambda: cluster.isr == [1])
        cluster.wait(lambda: cluster.partition(1).isr == [1])
        for value in ("c", "d"):
            assert cluster.result(cluster.produce_to(1, value)) is ErrorCode.NONE
        assert cluster.read() == ["a", "b", "c", "d"]


def test_nothing_waits_for_a_replica_that_is_far_behind() -> None:
    settings = {
        "leader.replication.throttled.rate": "20000",
        "replica.fetch.max.bytes": "20000",
        "replica.lag.time.max.ms": "30000",
    }
    configs = {**UNSYNCED, "leader.replication.throttled.replicas": "*"}
    with ReplicatedTopic(configs=configs, settings=settings) as cluster:
        cluster.send("a")
        cluster.wait_until_in_sync()
        cluster.brokers[3].kill()
        cluster.wait(lambda: cluster.isr == [1, 2])
        for _ in range(20):
            cluster.result(cluster.produce_to(1, "z" * 15_000))
        cluster.brokers[3].start()
        cluster.wait(lambda: cluster.brokers[3].is_up)
        cluster.elect(2)
        cluster.wait(lambda: cluster.partition(2).replicas is not None)
        began_s = cluster.world.timeline.now_s
        assert cluster.result(cluster.produce_to(2, "b")) is ErrorCode.NONE
        assert cluster.world.timeline.now_s - began_s < 1.0
        assert cluster.partition(3).log.end_offset < 20


def test_a_follower_joins_a_leader_that_is_alone_under_load() -> None:
    with ReplicatedTopic(configs=ALONE) as cluster:
        alone_leads(cluster)
        is_over = False

        async def load(number: int) -> None:
            while not is_over:
                await cluster.produce_to(1, "x", acks=1, name=f"load{number}")

        producers = [cluster.spawn(load(number)) for number in range(60)]
        cluster.brokers[2].start()
        cluster.wait(lambda: 2 in cluster.isr, within_s=8.0)
        is_over = True
        cluster.wait(lambda: all(one.done() for one in producers))


def test_a_request_that_was_held_back_is_not_acknowledged_by_another_leader() -> None:
    """The failure of a request lets the next one of its connection in, which must find the new role."""
    with ReplicatedTopic(configs=UNSYNCED) as cluster:
        cluster.send("a")
        cluster.wait_until_in_sync()
        codes: dict[int, ErrorCode] = {}

        def frame(number: int) -> bytes:
            batch = build_batch([(None, b"held" * (number == IN_FLIGHT_MAX), cluster.client.now_ms(), ())])
            partition = ProduceRequest.PartitionProduceData(index=0, records=batch)
            topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[partition])
            request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic])
            return request_frame(request, _PRODUCE, number, b"pipelined")

        async def pipelined() -> None:
            connection = await cluster.world.client_network.connect(1)
            # The broker holds the last request back, not the client.
            connection._turns = asyncio.Semaphore(IN_FLIGHT_MAX + 1)
            responses = [
                asyncio.ensure_future(connection.request(frame(n))) for n in range(IN_FLIGHT_MAX + 1)
            ]
            for number, response in enumerate(responses):
                message = read_response(await response, 0, _PRODUCE, number, ProduceResponse)
                codes[number] = ErrorCode(message.responses[0].partition_responses[0].error_code)

        cluster.block(between(1, 2, 3))
        sending = cluster.spawn(pipelined())
        cluster.wait(lambda: cluster.partition(1).log.end_offset == 1 + IN_FLIGHT_MAX)
        cluster.elect(2)
        cluster.wait(lambda: cluster.partition(1).leader == 2)
        cluster.unblock(between(1, 2, 3))
        for number in range(IN_FLIGHT_MAX + 2):
            cluster.send(str(number))
        cluster.wait(sending.done)
        assert codes[IN_FLIGHT_MAX] is not ErrorCode.NONE
        assert "held" not in cluster.read()


def test_a_fetch_that_waits_hears_of_another_leader_at_once() -> None:
    with ReplicatedTopic(configs=UNSYNCED) as cluster:
        cluster.send("a")
        cluster.wait_until_in_sync()

        async def fetch() -> ErrorCode:
            partition = FetchRequest.FetchPartition(
                partition=0,
                current_leader_epoch=cluster.state.epoch,
                fetch_offset=1,
                partition_max_bytes=1000,
            )
            request = FetchRequest(
                max_wait_ms=20_000,
                min_bytes=1,
                max_bytes=1000,
                session_epoch=-1,
                topics=[FetchRequest.FetchTopic(topic=TOPIC, partitions=[partition])],
            )
            client = WorldClient(cluster.world, "waiting", request_timeout_s=60.0)
            response = await client.call(1, request, FetchResponse, _FETCH)
            return ErrorCode(response.responses[0].partitions[0].error_code)

        fetching = cluster.spawn(fetch())
        cluster.run(1.0)
        assert not fetching.done()
        cluster.elect(2)
        cluster.wait(fetching.done, within_s=1.0)
        assert fetching.result() is ErrorCode.FENCED_LEADER_EPOCH


def delete_topic(cluster: ReplicatedTopic) -> None:
    wanted = DeleteTopicsRequest.DeleteTopicState(name=TOPIC)
    request = DeleteTopicsRequest(topics=[wanted], timeout_ms=3000)
    response = cluster.result(cluster.client.call(1, request, DeleteTopicsResponse, _DELETE_TOPICS))
    assert response.responses[0].error_code == 0


@pytest.mark.parametrize("change", ["creation", "deletion", "deletion and creation"])
def test_a_topic_that_changes_while_a_broker_opens_its_logs(change: str) -> None:
    with ReplicatedTopic(configs=UNSYNCED) as cluster:
        for number in range(8):
            cluster.create_topic(f"t{number}", [list(NODES)])
            cluster.result(cluster.producer.send(f"t{number}", 0, [b"x"]))
        cluster.send("a")
        cluster.wait_until_in_sync()
        node = cluster.brokers[3]
        # Opening takes longer than the change, and the registration of the process before has not expired yet.
        node.disk_operation_s = 3.0
        node.kill()
        node.start()
        cluster.run(0.5)
        assert node.core is None
        if "deletion" in change:
            delete_topic(cluster)
        if change == "creation":
            cluster.create_topic("late", [list(NODES)])
        elif "creation" in change:
            cluster.create_topic(TOPIC, [list(NODES)])
        assert node.core is None
        cluster.wait(lambda: node.is_up, within_s=400.0)
        assert node.starts == 2
        node.disk_operation_s = 0.0
        core = node.core
        assert core is not None
        name = "late" if change == "creation" else TOPIC
        if change == "deletion":
            cluster.wait(lambda: core.partitions.get(name, 0) is None)
        else:
            cluster.wait(lambda: core.metadata.image.topics[name].partitions[0].isr == list(NODES))
            partition = core.partitions.get(name, 0)
            assert partition is not None
            assert partition.topic_id == core.metadata.image.topics[name].id


_TRANSACTIONS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "replica.lag.time.max.ms": "300000",
}


def test_back_to_back_transactions_away_from_their_coordinator() -> None:
    """The marker of one transaction arrives while the next one is verified (KIP-890)."""
    with ReplicatedTopic(configs=UNSYNCED, settings=_TRANSACTIONS) as cluster:
        producer = TransactionalWorldProducer(cluster.client, "t")
        cluster.result(producer.open())
        core = cluster.brokers[1].core
        assert core is not None
        away = [node for node in NODES if node != core.transactions.coordinator_of("t")]
        for node in away:
            cluster.create_topic(f"on{node}", [[node]])
        for number in range(20):
            for node in away:
                cluster.result(producer.send(f"on{node}", 0, [str(number).encode()]))
            cluster.result(producer.end(commits=True))


def test_a_partition_that_cannot_commit_holds_up_the_markers_of_no_others() -> None:
    with ReplicatedTopic(configs=UNSYNCED, settings=_TRANSACTIONS) as cluster:
        stuck = TransactionalWorldProducer(cluster.client, "stuck", transaction_timeout_ms=600_000)
        other_client = WorldClient(cluster.world, "other", patience_s=200.0)
        fine = TransactionalWorldProducer(other_client, "fine", transaction_timeout_ms=600_000)
        for producer in (stuck, fine):
            cluster.result(producer.open())
        core = cluster.brokers[1].core
        assert core is not None
        leader, follower = (node for node in NODES if node != core.transactions.coordinator_of("stuck"))
        cluster.create_topic("stuck", [[leader, follower]], {"min.insync.replicas": "1"})
        cluster.create_topic("fine", [[leader]])
        cluster.result(stuck.send("stuck", 0, [b"1"]))
        cluster.result(fine.send("fine", 0, [b"1"]))
        cluster.block(between(leader, follower))
        cluster.result(stuck.end(commits=True))
        cluster.run(0.2)
        cluster.result(fine.end(commits=True))
        core = cluster.brokers[leader].core
        assert core is not None
        logs = {name: core.partitions.by_name[name, 0].log for name in ("stuck", "fine")}
        cluster.wait(lambda: logs["fine"].last_stable_offset == 2, within_s=10.0)
        cluster.run(60.0)
        assert logs["stuck"].end_offset == 2, "one marker, however often the coordinator asks"
        cluster.unblock(between(leader, follower))
        cluster.wait(lambda: logs["stuck"].last_stable_offset == 2)
