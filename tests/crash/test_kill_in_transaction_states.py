"""`kill -9` of the broker in every state of a transaction, and before every write of one (F6, N1; KIP-98, KIP-890).

What is decided stays decided and is carried out; what is not may go on after the restart, or is aborted when its time
is over; never is a part of a transaction seen without the rest. Whoever belongs to the past is told so.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    EndTxnResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from support.broker.dying_broker import DyingBroker
from support.wire.transactions import (
    END_VERSION,
    LATER,
    WireProducer,
    committed_offset,
    committed_values,
    state_of,
)
from support.wire.wire import Wire

NONE = ErrorCode.NONE
SETTINGS = (
    "flint.rest.port=-1",
    "offsets.topic.num.partitions=2",
    "transaction.state.log.num.partitions=2",
)
SHORT_MS = 2000
TOPIC_RESOURCE = 2

Seen = tuple[list[bytes | None], list[bytes | None], int]
ALL: Seen = [b"v"], [b"v"], 7
NOTHING: Seen = [], [], -1


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DyingBroker]:
    started = DyingBroker(tmp_path_factory.mktemp("transactions") / "data", *SETTINGS)
    started.start()
    yield started
    started.close()


class Stage:
    """Two topics that a transaction writes to, a third one whose offsets it commits, and its id."""

    def __init__(self, broker: DyingBroker) -> None:
        self.broker = broker
        self.id = f"id-{uuid4()}"
        self.group = f"g-{self.id}"
        self.slow, self.fast, self.source = f"slow-{self.id}", f"fast-{self.id}", f"source-{self.id}"
        with self.connect() as wire:
            # Where an fsync must be waited for, a transaction can be caught between its decision and its end.
            wire.create_topic(self.slow, flush_messages="1")
            wire.create_topic(self.fast)
            wire.create_topic(self.source)

    def connect(self) -> Wire:
        return Wire(self.broker.address)

    def restart(self) -> Wire:
        self.broker.kill()
        self.broker.forget_orders()
        self.broker.start()
        return self.connect()

    def fill(self, producer: WireProducer, value: bytes = b"v", offset: int = 7) -> None:
        """A transaction with data in two partitions, and an offset."""
        assert producer.produce(self.slow, value) is NONE
        assert producer.produce(self.fast, value) is NONE
        assert producer.commit_offset(self.group, self.source, offset) is NONE

    def seen(self, wire: Wire) -> Seen:
        """All that a transaction of `fill` can change, once it is carried out."""
        wait_for_the_end(wire, self.id)
        return self.visible(wire)

    def visible(self, wire: Wire) -> Seen:
        return (
            committed_values(wire, self.slow),
            committed_values(wire, self.fast),
            committed_offset(wire, self.group, self.source),
        )


@pytest.fixture
def stage(broker: DyingBroker) -> Stage:
    return Stage(broker)


def wait_for_the_end(wire: Wire, transactional_id: str) -> None:
    """Of the transaction, if it is decided: its markers are written and safe."""
    while state_of(wire, transactional_id).startswith("Prepare"):
        pass


# ---- the states


def test_an_empty_transaction_outlives_a_kill_and_its_producer_goes_on(stage: Stage) -> None:
    with stage.connect() as wire:
        producer = WireProducer(wire, stage.id)
        assert producer.init() is NONE
    with stage.restart() as producer.wire:
        assert state_of(producer.wire, stage.id) == "Empty"
        stage.fill(producer)
        assert producer.end(committed=True) is NONE
        assert stage.seen(producer.wire) == ALL


@pytest.mark.parametrize("committed", [True, False])
def test_an_ongoing_transaction_goes_on_after_a_kill(stage: Stage, committed: bool) -> None:
    with stage.connect() as wire:
        producer = WireProducer(wire, stage.id)
        producer.init()
        stage.fill(producer)
    with stage.restart() as producer.wire:
        assert state_of(producer.wire, stage.id) == "Ongoing"
        assert committed_values(producer.wire, stage.slow) == []
        # What was sent before and is sent again is not written again.
        assert producer.produce(stage.fast, b"v", again=True) is NONE
        assert producer.commit_offset(stage.group, stage.source, 7) is NONE
        assert producer.end(committed=committed) is NONE
        assert stage.seen(producer.wire) == (ALL if committed else NOTHING)


def test_an_undecided_transaction_times_out_after_a_kill_and_its_producer_is_fenced(
    stage: Stage,
) -> None:
    with stage.connect() as wire:
        producer = WireProducer(wire, stage.id, timeout_ms=SHORT_MS)
        producer.init()
        stage.fill(producer)
    with stage.restart() as wire:
        producer.wire = wire
        behind = WireProducer(wire, f"behind-{stage.id}")
        behind.init()
        assert behind.produce(stage.slow, b"behind") is NONE
        assert behind.end(committed=True) is NONE
        # It can be read once the one before it is over.
        assert committed_values(wire, stage.slow, at_least=1) == [b"behind"]
        assert state_of(wire, stage.id) == "CompleteAbort"
        assert committed_offset(wire, stage.group, stage.source) == -1
        assert producer.produce(stage.slow, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert producer.commit_offset(stage.group, stage.source, 8) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert producer.end(committed=True) is ErrorCode.INVALID_TXN_STATE
        assert stage.seen(wire) == ([b"behind"], [], -1)


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_whose_markers_are_not_safe_is_carried_out_after_a_kill(
    stage: Stage, committed: bool
) -> None:
    with stage.connect() as wire:
        producer = WireProducer(wire, stage.id)
        producer.init()
        stage.fill(producer)
        stage.broker.order(f"hold {stage.slow}-0/")
        before = producer.epoch
        assert producer.end(committed=committed) is NONE
        stage.broker.wait_until_held()
        assert state_of(wire, stage.id) == ("PrepareCommit" if committed else "PrepareAbort")
        assert committed_values(wire, stage.slow) == []
        assert committed_values(wire, stage.fast) == ([b"v"] if committed else [])
    check_carried_out(stage, producer, before, committed)


@pytest.mark.parametrize("committed", [True, False])
def test_a_decision_that_nobody_was_told_of_is_carried_out_after_a_kill(
    stage: Stage, committed: bool
) -> None:
    """It was written, and was not safe yet: no marker was written, no answer given."""
    with stage.connect() as wire:
        producer = WireProducer(wire, stage.id)
        producer.init()
        stage.fill(producer)
        make_durable(wire, "__transaction_state")
        stage.broker.order("hold __transaction_state-")
        before = producer.epoch
        wire.send(producer.end_request(committed=committed), END_VERSION)
        stage.broker.wait_until_held()
        with stage.connect() as other:
            assert committed_values(other, stage.slow) == committed_values(other, stage.fast) == []
    check_carried_out(stage, producer, before, committed)


def check_carried_out(stage: Stage, producer: WireProducer, before: int, committed: bool) -> None:
    with stage.restart() as producer.wire:
        fenced = WireProducer(producer.wire, stage.id)
        # A client that knows of no answer asks again, and is told the same.
        producer.epoch = before
        while (code := producer.end(committed=committed)) in LATER:
            pass
        assert (code, producer.epoch) == (NONE, before + 1)
        assert state_of(producer.wire, stage.id) == ("CompleteCommit" if committed else "CompleteAbort")
        assert stage.seen(producer.wire) == (ALL if committed else NOTHING)
        assert fenced.init() is NONE
        assert fenced.epoch == before + 2


@pytest.mark.parametrize("committed", [True, False])
def test_a_complete_transaction_stays_complete_after_a_kill(stage: Stage, committed: bool) -> None:
    with stage.connect() as wire:
        producer = WireProducer(wire, stage.id)
        producer.init()
        stage.fill(producer)
        again, other = (
            producer.end_request(committed=committed),
            producer.end_request(committed=not committed),
        )
        late = producer.batch(stage.slow, b"late")
        assert producer.end(committed=committed) is NONE
        # The next request waits for the markers, so after it the transaction is complete.
        assert producer.produce(stage.fast, b"next") is NONE
        assert producer.end(committed=False) is NONE
        assert stage.seen(wire) == (ALL if committed else NOTHING)
    with stage.restart() as wire:
        producer.wire = wire
        assert state_of(wire, stage.id) == "CompleteAbort"
        assert stage.seen(wire) == (ALL if committed else NOTHING)
        # Delayed and repeated requests of the transaction before the last touch nothing (KIP-890).
        for request in (again, other):
            answer = wire.ask(request, END_VERSION)
            assert isinstance(answer, EndTxnResponse)
            assert answer.error_code == ErrorCode.PRODUCER_FENCED
        assert producer.send_batch(stage.slow, late) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert producer.produce(stage.fast, b"after") is NONE
        assert producer.end(committed=True) is NONE
        assert committed_values(wire, stage.fast)[-1:] == [b"after"]


def test_an_end_that_is_repeated_after_a_kill_is_answered_the_same(stage: Stage) -> None:
    with stage.connect() as wire:
        producer = WireProducer(wire, stage.id)
        producer.init()
        stage.fill(producer)
        again, other = producer.end_request(committed=True), producer.end_request(committed=False)
        assert producer.end(committed=True) is NONE
        assert stage.seen(wire) == ALL
    with stage.restart() as wire:
        assert state_of(wire, stage.id) == "CompleteCommit"
        for request, code in ((again, NONE), (other, ErrorCode.INVALID_TXN_STATE), (again, NONE)):
            answer = wire.ask(request, END_VERSION)
            assert isinstance(answer, EndTxnResponse)
            assert answer.error_code == code
        assert stage.seen(wire) == ALL


def test_a_zombie_is_fenced_by_the_instance_that_came_after_a_kill(stage: Stage) -> None:
    with stage.connect() as wire:
        zombie = WireProducer(wire, stage.id)
        zombie.init()
        stage.fill(zombie)
    with stage.restart() as wire:
        zombie.wire = wire
        current = WireProducer(wire, stage.id)
        assert current.init() is NONE
        assert current.producer_id == zombie.producer_id
        assert zombie.produce(stage.slow, b"zombie") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert zombie.add_partition(stage.slow) is ErrorCode.PRODUCER_FENCED
        assert zombie.commit_offset(stage.group, stage.source, 9) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert zombie.end(committed=True) is ErrorCode.PRODUCER_FENCED
        stage.fill(current)
        assert current.end(committed=True) is NONE
        assert stage.seen(wire) == ALL


# ---- every write


@pytest.mark.parametrize("committed", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_kill_before_any_write_leaves_all_of_a_transaction_or_nothing(
    stage: Stage, committed: bool
) -> None:
    """Its coordinator's records, its data and offsets, its markers: before each of them in turn the broker dies."""

    def fill_and_end(wire: Wire, number: int) -> None:
        producer = WireProducer(wire, f"{stage.id}-{number}")
        assert producer.init() is NONE
        stage.fill(producer, b"%d" % number, number)
        assert producer.end(committed=committed) is NONE

    with stage.connect() as wire:
        # The coordinators' topics are there afterwards, so that all that is written later is in logs.
        fill_and_end(wire, 0)
    values: list[bytes | None] = [b"0"] if committed else []
    expected: Seen = values, values, 0 if committed else -1
    outcomes = set()
    for number in range(1, 100):
        stage.broker.order(f"die {number}")
        answered = False
        with suppress(OSError, EOFError), stage.connect() as wire:
            fill_and_end(wire, number)
            answered = True
            wait_for_the_end(wire, f"{stage.id}-{number}")
            break
        assert stage.broker.wait() == -signal.SIGKILL
        with stage.restart() as wire:
            # The next instance aborts what is undecided, and waits for what is decided.
            assert WireProducer(wire, f"{stage.id}-{number}").init() is NONE
            values = [*expected[0], b"%d" % number]
            now, with_it = stage.visible(wire), (values, values, number)
            assert now in (expected, with_it), number
            assert committed or now == expected
            assert not (committed and answered) or now == with_it, "what was promised is lost"
            outcomes.add(now == with_it)
            expected = now
    stage.broker.forget_orders()
    assert number > 10, "a transaction has more writes than that"
    assert outcomes == ({True, False} if committed else {False})


def make_durable(wire: Wire, topic: str) -> None:
    change = IncrementalAlterConfigsRequest.AlterableConfig(
        name="flush.messages", config_operation=0, value="1"
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change]
    )
    answer = wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == NONE, answer.responses[0].error_message
