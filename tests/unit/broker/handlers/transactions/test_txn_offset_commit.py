"""AddOffsetsToTxn and TxnOffsetCommit: a group's offsets as part of a transaction (N1; KIP-98, KIP-447, KIP-890)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import OffsetFetchRequest, OffsetFetchResponse
from support.broker.single_broker import SingleBroker
from support.wire.transactional import Place, TransactionalClient, find_coordinator

StartBroker = Callable[..., SingleBroker]

NONE = ErrorCode.NONE
GROUP = "g"


@pytest.fixture
def client(broker: SingleBroker) -> TransactionalClient:
    broker.create("t", 2)
    find_coordinator(broker)
    find_coordinator(broker, key_type=0)
    client = TransactionalClient(broker)
    assert client.init() is NONE
    return client


def fetched(
    client: TransactionalClient, *, require_stable: bool = False
) -> dict[Place, tuple[int, ErrorCode]]:
    """What the group goes on at in both partitions."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
    request = OffsetFetchRequest(groups=[group], require_stable=require_stable)
    answer = client.broker.ask(request, OffsetFetchResponse, 9)
    return {
        (found.name, one.partition_index): (one.committed_offset, ErrorCode(one.error_code))
        for found in answer.groups[0].topics
        for one in found.partitions
    }


def offsets_place(client: TransactionalClient) -> Place:
    return "__consumer_offsets", client.broker.groups.index_of(GROUP)


# ---- AddOffsetsToTxn


@pytest.mark.parametrize("version", range(5))
def test_the_group_s_partition_takes_part(client: TransactionalClient, version: int) -> None:
    assert client.add_offsets(GROUP, version) is NONE
    assert (client.state, client.partitions) == ("Ongoing", [offsets_place(client)])


@pytest.mark.parametrize("version", range(5))
def test_others_cannot_add_offsets(client: TransactionalClient, version: int) -> None:
    before = client.producer
    client.init()
    client.use(*before)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.add_offsets(GROUP, version) is fenced
    client.use(before[0] + 1_000, 0)
    assert client.add_offsets(GROUP, version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert client.state == "Empty"


def test_who_adds_offsets_first_makes_the_topic_of_groups(broker: SingleBroker) -> None:
    find_coordinator(broker)
    client = TransactionalClient(broker)
    client.init()
    assert client.add_offsets(GROUP) is NONE
    assert client.partitions == [offsets_place(client)]


# ---- TxnOffsetCommit


@pytest.mark.parametrize("version", range(6))
def test_offsets_are_pending_until_the_transaction_is_committed(
    client: TransactionalClient, version: int
) -> None:
    if version < 5:
        client.add_offsets(GROUP)
    assert client.commit_offsets(GROUP, {("t", 0): 7}, version) == {("t", 0): NONE}
    assert client.partitions == [offsets_place(client)]
    assert fetched(client) == {("t", 0): (-1, NONE), ("t", 1): (-1, NONE)}
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert fetched(client, require_stable=True) == {("t", 0): (-1, unstable), ("t", 1): (-1, NONE)}
    assert client.end(committed=True, version=min(version, 5)) is NONE
    assert fetched(client, require_stable=True) == {("t", 0): (7, NONE), ("t", 1): (-1, NONE)}


@pytest.mark.parametrize("version", range(6))
def test_offsets_of_an_aborted_transaction_never_were(client: TransactionalClient, version: int) -> None:
    client.commit_offsets(GROUP, {("t", 0): 3})
    client.end(committed=True)
    if version < 5:
        client.add_offsets(GROUP)
    client.commit_offsets(GROUP, {("t", 0): 7, ("t", 1): 8}, version)
    assert fetched(client)[("t", 0)] == (3, NONE)
    assert client.end(committed=False, version=version) is NONE
    assert fetched(client, require_stable=True) == {("t", 0): (3, NONE), ("t", 1): (-1, NONE)}


@pytest.mark.parametrize("version", range(5))
def test_older_clients_have_to_add_the_offsets_first(client: TransactionalClient, version: int) -> None:
    """With the code that the client's version knows (KIP-890)."""
    code = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
    client.add(("t", 0))
    assert client.commit_offsets(GROUP, {("t", 0): 7, ("t", 1): 8}, version) == {
        ("t", 0): code,
        ("t", 1): code,
    }
    assert fetched(client, require_stable=True) == {("t", 0): (-1, NONE), ("t", 1): (-1, NONE)}


@pytest.mark.parametrize("version", range(6))
def test_partitions_that_are_not_there_are_refused_alone(client: TransactionalClient, version: int) -> None:
    client.add_offsets(GROUP)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    offsets = {("t", 0): 7, ("t", 9): 1, ("nowhere", 0): 1}
    assert client.commit_offsets(GROUP, offsets, version) == {
        ("t", 0): NONE,
        ("t", 9): unknown,
        ("nowhere", 0): unknown,
    }
    client.end(committed=True)
    assert fetched(client)[("t", 0)] == (7, NONE)


def test_offsets_for_nothing_that_is_there_begin_no_transaction(client: TransactionalClient) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.commit_offsets(GROUP, {("nowhere", 0): 1}) == {("nowhere", 0): unknown}
    assert client.state == "Empty"


@pytest.mark.parametrize("version", range(6))
def test_others_cannot_commit_offsets(client: TransactionalClient, version: int) -> None:
    before = client.producer
    client.init()
    client.add_offsets(GROUP)
    fenced = {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert client.commit_offsets(GROUP, {("t", 0): 7}, version, before) == fenced
    stranger = (before[0] + 1_000, 0)
    mapping = {("t", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert client.commit_offsets(GROUP, {("t", 0): 7}, version, stranger) == mapping
    client.end(committed=True)
    assert fetched(client)[("t", 0)] == (-1, NONE)


def test_a_commit_that_comes_after_the_end_of_its_transaction_is_refused(client: TransactionalClient) -> None:
    client.commit_offsets(GROUP, {("t", 0): 7})
    before = client.producer
    client.end(committed=True)
    fenced = {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert client.commit_offsets(GROUP, {("t", 0): 5}, 5, before) == fenced
    assert fetched(client)[("t", 0)] == (7, NONE)
    assert client.state == "CompleteCommit"


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_member_that_the_group_does_not_have_is_refused(client: TransactionalClient, version: int) -> None:
    """A zombie of the consumer's side (KIP-447)."""
    client.add_offsets(GROUP)
    codes = client.commit_offsets(GROUP, {("t", 0): 7}, version, generation_id=3, member_id="zombie")
    assert codes == {("t", 0): ErrorCode.ILLEGAL_GENERATION}
    client.end(committed=True)
    assert fetched(client)[("t", 0)] == (-1, NONE)


def test_pending_offsets_survive_a_restart_and_count_once_the_transaction_is_committed(
    client: TransactionalClient, start_broker: StartBroker
) -> None:
    client.commit_offsets(GROUP, {("t", 0): 7})
    again = start_broker(disk=client.broker.disk.kill())
    find_coordinator(again)
    again.loop.run_until_complete(again.groups.loaded())
    later = TransactionalClient(again)
    later.use(*client.producer)
    assert fetched(later, require_stable=True)[("t", 0)] == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert later.end(committed=True) is NONE
    assert fetched(later, require_stable=True)[("t", 0)] == (7, NONE)
