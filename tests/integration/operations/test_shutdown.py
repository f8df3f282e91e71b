"""The end of a broker, in order or not, and what the next one finds (R1, R4, B4)."""

from __future__ import annotations

import random
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flintmq.protocol.messages import FetchResponse, ProduceResponse
from support.broker.broker_process import BrokerFailed, BrokerProcess, StartBroker
from support.wire.wire import Wire, batch_of, fetch_request, produce_request, records_in, values_of

LONG_POLL_MS = 600_000
AT_ONCE = 130
"""The exit code of a broker that was not given the time to stop in order."""


def all_values(wire: Wire, topic: str, partition: int = 0, *, start: int = 0) -> list[bytes | None]:
    """Everything that a partition holds from an offset on."""
    found: list[bytes | None] = []
    while True:
        offset = start + len(found)
        response = wire.fetch(fetch_request(topic, {partition: offset}, partition_max_bytes=8 << 20))
        more = values_of(response)[partition]
        if not more:
            return found
        found += more


# ---- in order


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_order(broker: BrokerProcess, number: signal.Signals) -> None:
    with Wire(broker.address) as wire:
        wire.create_topic("t")
        wire.produce("t", batch_of(b"x"))
        broker.process.send_signal(number)
        assert wire.is_closed_by_the_broker()
    assert broker.wait() == 0


def test_a_restart_keeps_everything(broker: BrokerProcess) -> None:
    values = [b"%d" % i for i in range(100)]
    with Wire(broker.address) as wire:
        topic_id = wire.create_topic("t", partitions=2, retention_ms="123456")
        for value in values:
            wire.produce("t", batch_of(value), partition=1)
        cluster_id = wire.metadata().cluster_id
    assert broker.stop() == 0
    broker.start()
    with Wire(broker.address) as wire:
        metadata = wire.metadata()
        assert metadata.cluster_id == cluster_id
        assert [(topic.name, topic.topic_id, len(topic.partitions)) for topic in metadata.topics] == [
            ("t", topic_id, 2)
        ]
        assert all_values(wire, "t", 1) == values
        assert wire.produce("t", batch_of(b"next"), partition=1).base_offset == 100


def test_waiting_readers_are_answered_before_the_end(broker: BrokerProcess) -> None:
    with Wire(broker.address) as wire:
        wire.create_topic("t")
        wire.send(fetch_request("t", {0: 0}, max_wait_ms=LONG_POLL_MS), 12)
        wire.send(produce_request("no-such-topic", batch_of(b"x")), 9)
        with Wire(broker.address) as other:
            for _ in range(3):
                other.metadata()
        broker.process.send_signal(signal.SIGTERM)
        assert isinstance(wire.receive()[1], FetchResponse)
        assert isinstance(wire.receive()[1], ProduceResponse)
        assert wire.is_closed_by_the_broker()
    assert broker.wait() == 0


@dataclass
class Load:
    """A producer that keeps writing to one partition, pipelined, until its connection ends."""

    address: str
    topic: str
    partition: int
    window: int = 16
    sent: int = 0
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """Values by the offset that the broker said they have."""
    wanted: int = 1
    reached: threading.Event = field(default_factory=threading.Event)
    """Set once so many as `wanted` are acknowledged."""

    def run(self) -> None:
        pending: list[bytes] = []
        try:
            with Wire(self.address) as wire:
                while True:
                    while len(pending) < self.window:
                        value = b"%d-%d-%d" % (self.partition, self.sent, id(self)) + b"x" * (
                            self.sent * 37 % 3000
                        )
                        self.sent += 1
                        pending.append(value)
                        wire.send(produce_request(self.topic, batch_of(value), partition=self.partition), 9)
                    response = wire.receive()[1]
                    assert isinstance(response, ProduceResponse)
                    answer = response.responses[0].partition_responses[0]
                    value = pending.pop(0)
                    if answer.error_code == 0:
                        self.acknowledged[answer.base_offset] = value
                        if len(self.acknowledged) >= self.wanted:
                            self.reached.set()
        except (EOFError, OSError):
            pass  # the end of the broker ends the load


def under_load(
    broker: BrokerProcess, topic: str, partitions: int, wanted: int = 1
) -> tuple[list[Load], list[threading.Thread]]:
    """Loads that run, each with so many acknowledgements behind it."""
    loads = [Load(broker.address, topic, partition, wanted=wanted) for partition in range(partitions)]
    threads = [threading.Thread(target=load.run) for load in loads]
    for thread in threads:
        thread.start()
    for load in loads:
        assert load.reached.wait(30)
    return loads, threads


def check_kept(broker: BrokerProcess, topic: str, loads: list[Load]) -> None:
    """Every acknowledged record is there, at the offset that was said."""
    with Wire(broker.address) as wire:
        for partition in {load.partition for load in loads}:
            acknowledged: dict[int, bytes] = {}
            for load in loads:
                if load.partition == partition:
                    assert not acknowledged.keys() & load.acknowledged.keys(), "an offset was given twice"
                    acknowledged |= load.acknowledged
            start = min(acknowledged)
            found = dict(enumerate(all_values(wire, topic, partition, start=start), start))
            lost = [offset for offset, value in acknowledged.items() if found.get(offset) != value]
            assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged records are gone: {lost[:10]}"


def test_stopping_under_load_acknowledges_or_fails_cleanly(broker: BrokerProcess) -> None:
    with Wire(broker.address) as wire:
        wire.create_topic("t", partitions=2)
        wire.create_topic("durable", partitions=2, flush_messages="1")
    running = [under_load(broker, topic, 2) for topic in ("t", "durable")]
    assert broker.stop() == 0
    for _, threads in running:
        for thread in threads:
            thread.join()
    broker.start()
    assert "recover" not in broker.ready_line
    for (loads, _), topic in zip(running, ("t", "durable"), strict=True):
        check_kept(broker, topic, loads)


def test_a_second_signal_exits_at_once(start_broker: StartBroker) -> None:
    broker = start_broker()
    with Wire(broker.address, receive_buffer=4096) as stubborn, Wire(broker.address) as wire:
        wire.create_topic("t")
        for _ in range(10):
            wire.produce("t", batch_of(b"x" * 900_000))
        # Answers that nobody takes keep the broker from stopping for a while.
        stubborn.send(fetch_request("t", {0: 0}, partition_max_bytes=20 << 20), 12)
        assert stubborn.sock.recv(1)
        broker.process.send_signal(signal.SIGTERM)
        while accepts(broker):
            pass  # until the first signal is seen to have been taken
        assert broker.is_running
        broker.process.send_signal(signal.SIGTERM)
        assert broker.wait() == AT_ONCE


def accepts(broker: BrokerProcess) -> bool:
    try:
        Wire(broker.address).sock.close()
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:
        pass  # it was in the queue when the listener closed
    return True


def test_a_folder_serves_one_broker_at_a_time(broker: BrokerProcess) -> None:
    second = BrokerProcess(broker.data_dir, ["--port", "0"])
    second.error_log = broker.data_dir.with_name("second.stderr")
    with pytest.raises(BrokerFailed, match="in use by another broker"):
        second.start()
    with Wire(broker.address) as wire:
        wire.create_topic("t")
    assert broker.stop() == 0
    second.start()
    with Wire(second.address) as wire:
        assert [topic.name for topic in wire.metadata().topics] == ["t"]
    assert second.stop() == 0


def test_a_lock_left_by_a_killed_broker_holds_nobody_back(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()
    with Wire(broker.address) as wire:
        wire.create_topic("t")


# ---- not in order


def kill_again_and_again(broker: BrokerProcess, times: int, seed: int) -> None:
    """Kill -9 under load, restart, check; the log grows from one time to the next."""
    source = random.Random(seed)
    print(f"seed {seed}")
    with Wire(broker.address) as wire:
        # Small segments, so that rolling is interrupted too.
        wire.create_topic("plain", partitions=2, segment_bytes="100000")
        wire.create_topic("durable", partitions=1, flush_messages="1", segment_bytes="100000")
    history: dict[str, list[Load]] = {"plain": [], "durable": []}
    for _ in range(times):
        durable, threads = under_load(broker, "durable", 1)
        plain, more = under_load(broker, "plain", 2, wanted=source.randrange(1, 300))
        broker.kill()
        for thread in threads + more:
            thread.join()
        history["plain"] += plain
        history["durable"] += durable
        broker.start()
        for topic, loads in history.items():
            check_kept(broker, topic, loads[-2:])
    for topic, loads in history.items():
        check_kept(broker, topic, loads)


def test_killed_under_load_nothing_acknowledged_is_lost(broker: BrokerProcess) -> None:
    """B4, R1: twenty times."""
    kill_again_and_again(broker, 20, seed=7)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_two_hundred_times_nothing_acknowledged_is_lost(broker: BrokerProcess) -> None:
    kill_again_and_again(broker, 200, seed=8)


def test_offsets_and_times_go_on_after_a_crash(broker: BrokerProcess, tmp_path: Path) -> None:
    with Wire(broker.address) as wire:
        wire.create_topic("t", segment_bytes="10000")
        for i in range(200):
            wire.produce("t", batch_of(b"%d" % i * 20, timestamp=1_700_000_000_000 + i))
    broker.kill()
    broker.start()
    with Wire(broker.address) as wire:
        assert wire.produce("t", batch_of(b"next")).base_offset == 200
        (partition,) = wire.fetch(fetch_request("t", {0: 150})).responses[0].partitions
        assert records_in(partition.records)[0].timestamp == 1_700_000_000_150
