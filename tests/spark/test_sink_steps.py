"""A process of a streaming write may die between any two requests: every row is there once in the end.

Tasks and driver are called as Spark calls them, without Spark, so that every single step can be tried.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import pytest

from flintmq.arrow.write import write_task
from flintmq.arrow.write.exactly_once import WriteError, WriteResult
from flintmq.arrow.write.ledger import Ledger
from flintmq.arrow.write.options import LEDGER_TOPIC, SinkOptions
from flintmq.arrow.write.write_task import WriteTask
from flintmq.client.addresses import Address, parse_addresses
from flintmq.client.cluster import ClusterClient
from flintmq.client.transport import SocketTransport, connect
from flintmq.effects import Buffer
from flintmq.protocol.messages import EndTxnRequest
from flintmq.testing import Broker

TASKS = 3
ROWS = 4
QUERY = "query"
WAIT_S = 10.0
_KEY_AT = slice(4, 6)


class Killed(BaseException):
    """What a process does not survive: nothing that runs after it may do anything."""


class _Mortal:
    """A transport whose process dies at a request."""

    def __init__(self, transport: SocketTransport, life: Life) -> None:
        self._transport = transport
        self._life = life
        self.receive = transport.receive
        self.close = transport.close

    def send(self, data: Buffer, timeout_s: float) -> None:
        dies = self._life.next_request(int.from_bytes(bytes(data[_KEY_AT])))
        if dies and self._life.before:
            raise Killed
        self._transport.send(data, timeout_s)
        if dies:
            raise Killed


class Life:
    """Ends at the request `at` of all or of one kind, from 0 on: before it is sent, or right after."""

    def __init__(self, at: int | None = None, *, before: bool = True, api_key: int | None = None) -> None:
        self.before = before
        self.requests = 0
        self._at = at
        self._api_key = api_key

    def next_request(self, api_key: int) -> bool:
        if self._api_key not in (None, api_key):
            return False
        self.requests += 1
        return self.requests - 1 == self._at

    def connect(self, address: Address, timeout_s: float) -> _Mortal:
        return _Mortal(connect(address, timeout_s), self)


class Stage:
    """A broker, a topic of three partitions, and a query whose batches are written to it."""

    def __init__(self, broker: Broker, patch: pytest.MonkeyPatch, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        self.query = f"{QUERY}-{topic}"
        self.options = SinkOptions(tuple(parse_addresses(broker.bootstrap_servers)), topic=topic)
        self._patch = patch
        broker.create_topic(topic, 3)

    def live(self, life: Life) -> None:
        self._patch.setattr(write_task, "ClusterClient", partial(ClusterClient, connect=life.connect))

    def write(self, batch: int, task: int, attempt: int = 0) -> WriteResult:
        values = [f"{batch}/{task}/{row}" for row in range(ROWS)]
        return write_task.write_once(self.options, self.query, batch, WriteTask(task, attempt), rows(values))

    def run(self, batch: int, life: Life | None = None) -> None:
        """All tasks, then the driver."""
        self.live(life or Life())
        write_task.commit(self.options, [self.write(batch, task) for task in range(TASKS)])

    def seen(self) -> Counter[str]:
        return Counter(
            (record.value or b"").decode() for record in self.broker.records(self.topic, read_committed=True)
        )

    def open(self) -> list[str]:
        states = self.broker.transactions()
        return [name for name, state in states.items() if self.query in name and state == "Ongoing"]

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """For what only the broker's clock brings about."""
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < deadline, self.broker.transactions()
            time.sleep(0.02)


def rows(values: list[str]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"value": pa.array(values)})


def once(*batches: int) -> Counter[str]:
    return Counter(
        f"{batch}/{task}/{row}" for batch in batches for task in range(TASKS) for row in range(ROWS)
    )


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture
def stage(broker: Broker, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Stage:
    return Stage(broker, monkeypatch, request.node.originalname)


# Every step is tried in the long run; by default one of several, so that each kind of request is among them.
STRIDES = pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.long)])


@STRIDES
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_driver_may_die_at_every_request(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, before: bool, stride: int
) -> None:
    measured = Life()
    warm = Stage(broker, monkeypatch, f"warm-{before}-{stride}")
    warm.run(0)
    warm.run(1, measured)
    assert measured.requests > 30
    for at in range(int(before) % stride, measured.requests, stride):
        stage = Stage(broker, monkeypatch, f"driver-{before}-{stride}-{at}")
        stage.run(0)
        with pytest.raises(Killed):
            stage.run(1, Life(at, before=before))
        stage.run(1)
        assert stage.seen() == once(0, 1), f"killed at request {at}"
        stage.run(2)
        assert stage.seen() == once(0, 1, 2), f"killed at request {at}"
        assert stage.open() == [], f"killed at request {at}"


@STRIDES
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_worker_may_die_at_every_request_of_its_task(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, before: bool, stride: int
) -> None:
    measured = Life()
    warm = Stage(broker, monkeypatch, f"warm-worker-{before}-{stride}")
    warm.run(0)
    warm.live(measured)
    warm.write(1, 1)
    for at in range(int(before) % stride, measured.requests, stride):
        stage = Stage(broker, monkeypatch, f"worker-{before}-{stride}-{at}")
        first = stage.write(0, 0)
        stage.live(Life(at, before=before))
        with pytest.raises(Killed):
            stage.write(0, 1)
        stage.live(Life())
        write_task.commit(stage.options, [first, stage.write(0, 1, attempt=1), stage.write(0, 2)])
        assert stage.seen() == once(0), f"killed at request {at}"
        assert stage.open() == [], f"killed at request {at}"


def test_nothing_is_seen_before_the_commit_and_a_second_commit_changes_nothing(stage: Stage) -> None:
    results = [stage.write(0, task) for task in range(TASKS)]
    assert stage.seen() == Counter()
    write_task.commit(stage.options, results)
    write_task.commit(stage.options, results)
    assert stage.seen() == once(0)


def test_an_abort_leaves_nothing_open_and_the_batch_can_be_written_again(stage: Stage) -> None:
    write_task.abort(stage.options, [stage.write(0, task) for task in range(2)])
    assert stage.open() == []
    stage.run(0)
    assert stage.seen() == once(0)


def test_what_a_speculative_attempt_left_open_is_aborted_by_the_commit(stage: Stage) -> None:
    results = [stage.write(0, task) for task in range(TASKS)]
    stage.write(0, 1, attempt=1)
    write_task.commit(stage.options, results)
    assert stage.open() == []
    assert stage.seen() == once(0)


def test_tasks_of_a_batch_before_the_last_write_nothing(stage: Stage) -> None:
    stage.run(0)
    stage.run(1)
    assert stage.write(0, 0).was_decided
    stage.run(0)
    assert stage.seen() == once(0, 1)


def test_a_batch_without_rows_needs_no_transaction(stage: Stage) -> None:
    written = write_task.write_once(stage.options, stage.query, 0, WriteTask(0, 0), iter([]))
    assert written.transaction is None
    write_task.commit(stage.options, [written])
    stage.run(1)
    assert stage.seen() == once(1)


# ---- a driver that stays away for too long


def kill_at_end(stage: Stage, ended: int) -> None:
    """The driver dies when it has committed so many transactions of batch 0, each of which lasts a second at most."""
    stage.options = SinkOptions(stage.options.bootstrap, topic=stage.topic, transaction_timeout_ms=1000)
    with pytest.raises(Killed):
        stage.run(0, Life(ended, api_key=EndTxnRequest.api_key))
    stage.live(Life())
    assert ledger_entry(stage) is not None


def ledger_entry(stage: Stage) -> object:
    with ClusterClient(stage.options.bootstrap) as client:
        return Ledger(client, LEDGER_TOPIC).last(stage.query)


def test_a_decision_of_which_nothing_was_committed_in_time_is_written_anew(stage: Stage) -> None:
    kill_at_end(stage, 0)
    stage.wait_until(lambda: not stage.open())
    stage.run(0)
    assert stage.seen() == once(0)
    stage.run(1)
    assert stage.seen() == once(0, 1)


def test_writing_anew_may_be_killed_too(stage: Stage) -> None:
    kill_at_end(stage, 0)
    stage.wait_until(lambda: not stage.open())
    stage.options = SinkOptions(stage.options.bootstrap, topic=stage.topic)
    stage.write(0, 0)
    stage.run(0)
    assert stage.seen() == once(0)
    assert stage.open() == []


def test_a_task_that_read_the_ledger_before_another_voided_the_decision_writes_anew_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_at_end(stage, 0)
    stage.wait_until(lambda: not stage.open())
    stage.options = SinkOptions(stage.options.bootstrap, topic=stage.topic)
    stale = [ledger_entry(stage)]
    first = stage.write(0, 0)
    read = Ledger.last
    monkeypatch.setattr(Ledger, "last", lambda ledger, query: stale.pop() if stale else read(ledger, query))
    write_task.commit(stage.options, [first, *(stage.write(0, task) for task in range(1, TASKS))])
    assert not stale
    assert stage.seen() == once(0)


def test_a_torn_batch_is_told_and_written_again_only_if_that_is_asked_for(stage: Stage) -> None:
    kill_at_end(stage, 1)
    stage.wait_until(lambda: not stage.open())
    with pytest.raises(WriteError, match=r"torn: 1 committed, 2 aborted .* onTornBatch=rewrite"):
        stage.run(0)
    (kept,) = {value.split("/")[1] for value in stage.seen()}
    stage.options = SinkOptions(stage.options.bootstrap, topic=stage.topic, rewrites_torn=True)
    stage.run(0)
    twice = Counter(value for value in once(0) if value.split("/")[1] == kept)
    assert stage.seen() == once(0) + twice
    stage.run(1)
    assert stage.seen() == once(0, 1) + twice


def test_a_batch_that_took_too_long_is_refused_before_the_decision(stage: Stage) -> None:
    stage.options = SinkOptions(stage.options.bootstrap, topic=stage.topic, transaction_timeout_ms=1000)
    results = [stage.write(0, task) for task in range(TASKS)]
    stage.wait_until(lambda: not stage.open())
    with pytest.raises(WriteError, match="took too long"):
        write_task.commit(stage.options, results)
    assert ledger_entry(stage) is None
    stage.options = SinkOptions(stage.options.bootstrap, topic=stage.topic)
    stage.run(0)
    assert stage.seen() == once(0)


def test_too_little_time_for_the_driver_to_come_back_is_refused_too(stage: Stage) -> None:
    allowed_s, left_s = 900, 30
    stage.broker.clock.set(int((time.time() - allowed_s + left_s) * 1000))
    results = [stage.write(0, task) for task in range(TASKS)]
    stage.broker.clock.release()
    with pytest.raises(WriteError, match="within 60000 ms"):
        write_task.commit(stage.options, results)
    assert ledger_entry(stage) is None


# ---- a broker that fails


def test_a_commit_that_fails_after_the_decision_is_not_undone_by_the_abort_that_follows(stage: Stage) -> None:
    results = [stage.write(0, task) for task in range(TASKS)]
    fault = stage.broker.faults.fail("EndTxn", error="UNKNOWN_SERVER_ERROR", times=None)
    with fault, pytest.raises(WriteError, match="start the query again"):
        write_task.commit(stage.options, results)
    write_task.abort(stage.options, results)
    assert len(stage.open()) == TASKS
    stage.run(0)
    assert stage.seen() == once(0)
    assert stage.open() == []


@pytest.mark.parametrize("api", ["EndTxn", "Produce", "InitProducerId", "DescribeTransactions"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_lost_at_a_request_is_made_up_for(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, api: str, when: str
) -> None:
    stage = Stage(broker, monkeypatch, f"lost-{api}-{when}")
    fault = broker.faults.close(api, when="before" if when == "before" else "after", times=2)
    stage.run(0)
    fault.clear()
    assert fault.hits == 2
    assert stage.seen() == once(0)


def test_a_broker_that_restarts_between_tasks_and_commit_has_kept_the_transactions(stage: Stage) -> None:
    results = [stage.write(0, task) for task in range(TASKS)]
    stage.broker.restart()
    write_task.commit(stage.options, results)
    assert stage.seen() == once(0)
