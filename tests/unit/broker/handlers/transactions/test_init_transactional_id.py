"""InitProducerId with a transactional id, and finding the coordinator (N1, F4; KIP-98, KIP-360, KIP-588)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol import messages
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    AbortTransactionRequest,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
)
from flintmq.testing.simulation import SimulatedDisk
from support.broker.single_broker import NODE_ID, SEED, Refused, SingleBroker
from support.wire.transactional import (
    ID,
    TransactionalClient,
    committed_values,
    find_coordinator,
    stable,
    transactional_batch,
)

StartBroker = Callable[..., SingleBroker]


@pytest.fixture
def client(broker: SingleBroker) -> TransactionalClient:
    broker.create("t", 2)
    find_coordinator(broker)
    return TransactionalClient(broker)


# ---- who has the id


@pytest.mark.parametrize("version", range(6))
def test_a_fresh_id_begins_at_epoch_zero_and_empty(client: TransactionalClient, version: int) -> None:
    assert client.init(version) is ErrorCode.NONE
    found = client.describe()
    assert (found.producer_id, found.producer_epoch) == client.producer
    assert (client.producer[1], found.transaction_state) == (0, "Empty")
    assert (found.transaction_timeout_ms, found.transaction_start_time_ms) == (60_000, -1)


def test_two_ids_have_two_producers(client: TransactionalClient) -> None:
    other = TransactionalClient(client.broker, "other")
    assert (client.init(), other.init()) == (ErrorCode.NONE, ErrorCode.NONE)
    assert client.producer[0] != other.producer[0]


@pytest.mark.parametrize("version", range(6))
def test_who_comes_later_has_the_id_and_the_one_before_is_fenced(
    client: TransactionalClient, version: int
) -> None:
    client.init(version)
    before = client.producer
    client.init(version)
    assert client.producer == (before[0], before[1] + 1)
    assert client.end(committed=False, version=5, producer=before) is ErrorCode.PRODUCER_FENCED
    assert client.end(committed=False, version=1, producer=before) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.produce("t", producer=before) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_bumps_its_own_epoch_and_asking_again_does_not_bump_twice(
    client: TransactionalClient, version: int
) -> None:
    """KIP-360."""
    client.init()
    before = client.producer
    assert client.bump(version) is ErrorCode.NONE
    assert client.producer == (before[0], before[1] + 1)
    assert client.bump(version, before) is ErrorCode.NONE
    assert client.producer == (before[0], before[1] + 1)


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)]
)
def test_who_lost_the_id_cannot_bump_its_epoch_and_is_told_so_in_its_version_s_words(
    client: TransactionalClient, version: int, code: ErrorCode
) -> None:
    """KIP-588."""
    client.init()
    before = client.producer
    client.init()
    assert client.bump(version, before) is code
    assert client.bump(version, (before[0] + 1_000, 0)) is code


def test_when_epochs_have_run_out_the_id_gets_another_producer(client: TransactionalClient) -> None:
    client.init()
    before = client.producer[0]
    client.exhaust()
    assert client.init() is ErrorCode.NONE
    assert client.producer[0] != before
    assert client.producer[1] == 0


# ---- what was left open


@pytest.mark.parametrize("version", range(6))
def test_what_was_left_open_is_aborted_at_once_and_nobody_has_to_come_again(
    client: TransactionalClient, version: int
) -> None:
    client.init(version)
    before = client.producer
    client.produce("t", b"lost")
    assert stable(client.broker, "t") == (0, 1)
    assert client.init(version) is ErrorCode.NONE
    # One epoch for the abort, which is nobody's, and one for the producer that comes.
    assert client.producer == (before[0], before[1] + 2)
    assert (stable(client.broker, "t"), committed_values(client.broker, "t")) == ((2, 2), [])
    assert (client.state, client.partitions) == ("Empty", [])


def test_what_was_left_open_under_the_last_epoch_is_aborted_too(client: TransactionalClient) -> None:
    client.init()
    client.exhaust()
    before = client.producer
    assert client.produce("t", b"lost") is ErrorCode.NONE
    assert client.init() is ErrorCode.NONE
    assert client.producer[0] != before[0]
    assert (stable(client.broker, "t"), committed_values(client.broker, "t")) == ((2, 2), [])


def test_two_that_come_at_once_are_both_answered_and_one_is_fenced(client: TransactionalClient) -> None:
    client.init()
    client.produce("t", b"lost")
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000)
    answers = client.broker.ask_together([request, request], messages.InitProducerIdResponse, 5)
    assert [one.error_code for one in answers] == [0, 0]
    epochs = sorted(one.producer_epoch for one in answers)
    assert epochs[0] < epochs[1] == client.describe().producer_epoch


# ---- what makes no sense


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_no_trace(
    client: TransactionalClient, fields: dict[str, object], code: ErrorCode
) -> None:
    assert client.init(**fields) is code  # type: ignore[arg-type]
    assert client.describe().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


# ---- the coordinator


@pytest.mark.parametrize("version", range(1, 7))
def test_the_coordinator_of_a_transactional_id_is_this_broker(broker: SingleBroker, version: int) -> None:
    fields = {"key": "", "coordinator_keys": ["a", "b"]} if version >= 4 else {"key": "a"}
    found = find_coordinator(broker, version, **fields)
    one = found.coordinators[1] if version >= 4 else found
    assert (one.error_code, one.node_id, one.port) == (0, NODE_ID, 9092)
    assert "__transaction_state" in broker.services.metadata.image.topics
    assert "__consumer_offsets" not in broker.services.metadata.image.topics


def test_without_groups_there_are_still_transactions_but_not_of_offsets(start_broker: StartBroker) -> None:
    broker = start_broker({"flint.consumer.groups.enable": "false"})
    broker.create("t")
    assert find_coordinator(broker, key_type=0).error_code == ErrorCode.INVALID_REQUEST
    assert find_coordinator(broker).error_code == ErrorCode.NONE
    client = TransactionalClient(broker)
    assert client.init() is client.produce("t", b"v") is client.end(committed=True) is ErrorCode.NONE
    assert committed_values(broker, "t") == [b"v"]
    for refused in (
        lambda: client.commit_offsets("g", {("t", 0): 1}),
        lambda: client.add_offsets("g"),
    ):
        with pytest.raises(Refused, match="not served"):
            refused()


def requests_of_all_kinds() -> list[tuple[Message, int]]:
    place = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])
    added = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(transactional_id=ID, topics=[place])
    offset = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[offset])
    return [
        (InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000), 5),
        (
            AddPartitionsToTxnRequest(v3_and_below_transactional_id=ID, v3_and_below_topics=[place]),
            3,
        ),
        (AddPartitionsToTxnRequest(transactions=[added]), 5),
        (AddOffsetsToTxnRequest(transactional_id=ID, group_id="g"), 4),
        (TxnOffsetCommitRequest(transactional_id=ID, group_id="g", topics=[topic]), 5),
        (EndTxnRequest(transactional_id=ID, committed=True), 5),
        (DescribeTransactionsRequest(transactional_ids=[ID]), 0),
        (AbortTransactionRequest(transactional_id=ID), 0),
    ]


def codes_in(value: object) -> set[int]:
    """All error codes of an answer, wherever they stand, but NONE."""
    if isinstance(value, list):
        return {code for one in value for code in codes_in(one)}
    names = [name for name in dir(value) if name.endswith("error_code")]
    found = {getattr(value, name) for name in names}
    for name in ("topics", "partitions", "results_by_transaction", "results_by_topic_v3_and_below"):
        found |= codes_in(getattr(value, name, []))
    for name in ("topic_results", "results_by_partition", "transaction_states"):
        found |= codes_in(getattr(value, name, []))
    return found - {ErrorCode.NONE}


KINDS = pytest.mark.parametrize(
    ("message", "version"), requests_of_all_kinds(), ids=lambda value: type(value).__name__
)


@KINDS
def test_before_the_topic_exists_the_coordinator_is_not_available(
    broker: SingleBroker, message: Message, version: int
) -> None:
    broker.create("t")
    answer = broker.ask(message, messages.response_of(message.api_key), version)
    assert codes_in(answer) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


@pytest.fixture
def restarted(broker: SingleBroker, start_broker: StartBroker) -> SingleBroker:
    """A broker that has begun to load what another one left behind: a producer with epoch 0."""
    before = SingleBroker(broker.loop, {}, SimulatedDisk(seed=SEED))
    before.create("t")
    find_coordinator(before)
    find_coordinator(before, key_type=0)
    TransactionalClient(before).init()
    before.close()
    return start_broker(disk=before.disk)


@KINDS
def test_while_transactions_are_loaded_clients_are_told_to_wait(
    restarted: SingleBroker, message: Message, version: int
) -> None:
    answer = restarted.ask(message, messages.response_of(message.api_key), version)
    commits = isinstance(message, TxnOffsetCommitRequest)
    assert codes_in(answer) == {
        ErrorCode.COORDINATOR_NOT_AVAILABLE if commits else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    }
    find_coordinator(restarted)
    client = TransactionalClient(restarted)
    assert client.init() is ErrorCode.NONE
    assert client.producer[1] == 1


def test_a_list_that_would_be_missing_some_is_refused_while_they_are_loaded(restarted: SingleBroker) -> None:
    answer = restarted.ask(ListTransactionsRequest(), ListTransactionsResponse, 2)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_records_of_a_transaction_wait_out_the_loading_of_their_coordinator(restarted: SingleBroker) -> None:
    """A producer understands NOT_ENOUGH_REPLICAS as: send it again."""
    client = TransactionalClient(restarted)
    client.use(0, 0)
    assert client.produce("t", b"v") is ErrorCode.NOT_ENOUGH_REPLICAS
    find_coordinator(restarted)
    assert client.init() is client.produce("t", b"v") is ErrorCode.NONE


def test_a_batch_of_a_transaction_is_never_taken_without_its_transactional_id(
    client: TransactionalClient,
) -> None:
    client.init()
    batch = transactional_batch(producer=client.producer)
    answer = client.broker.ask(
        messages.ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                messages.ProduceRequest.TopicProduceData(
                    name="t",
                    partition_data=[messages.ProduceRequest.PartitionProduceData(index=0, records=batch)],
                )
            ],
        ),
        messages.ProduceResponse,
        9,
    )
    code = answer.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
