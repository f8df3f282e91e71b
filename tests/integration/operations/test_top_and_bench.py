"""`flintmq top` and `flintmq bench` against a real broker (Z6, F12)."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

import pytest

from support.broker.broker_process import BrokerProcess, StartBroker
from support.cli.command import Ran, run
from support.wire.wire import Wire, batch_of


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker("--set", "flint.rest.port=0")


def url_of(broker: BrokerProcess) -> str:
    found = re.search(r"(http://\S+)", broker.errors)
    assert found is not None, broker.errors
    return found[1]


def while_producing(broker: BrokerProcess, action: Callable[[], Ran]) -> Ran:
    """What comes of `action` while a client writes without a pause."""
    over, begun = threading.Event(), threading.Event()

    def produce() -> None:
        with Wire(broker.address) as wire:
            wire.create_topic("busy")
            while not over.is_set():
                wire.produce("busy", batch_of(b"x"))
                begun.set()

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        assert begun.wait(30)
        return action()
    finally:
        over.set()
        producer.join()


def test_top_shows_what_happens_now(broker: BrokerProcess) -> None:
    ran = while_producing(
        broker,
        lambda: run("top", "--url", url_of(broker), "--once", "--json", "--interval", "0.5"),
    )
    found = ran.json
    assert found["ready"] is True
    assert found["records_in_per_s"] > 0
    assert found["connections"] == 1
    assert found["apis"][0]["name"] == "Produce"
    assert found["apis"][0]["p99_ms"] >= found["apis"][0]["p50_ms"] > 0
    assert found["busiest_partitions"][0]["topic"] == "busy"


def test_top_prints_one_picture_where_there_is_no_terminal(broker: BrokerProcess) -> None:
    ran = while_producing(broker, lambda: run("top", "--url", url_of(broker), "--interval", "0.3"))
    assert ran.out.startswith("broker   FlintMQ ")
    assert re.search(r"^Produce +\d", ran.out, re.MULTILINE)
    assert "busy-0" in ran.out


def test_top_says_what_is_wrong(broker: BrokerProcess) -> None:
    kafka_port = run("top", "--url", f"http://{broker.address}", code=3)
    assert "nothing answers" in kafka_port.error
    assert "--url" in run("top", "--url", "http://127.0.0.1:1", code=3).error
    assert "is not an address" in run("top", "--url", "localhost", code=2).error
    assert "404" in run("top", "--url", f"{url_of(broker)}/elsewhere", code=1).error


def test_bench_writes_reads_times_and_cleans_up(broker: BrokerProcess) -> None:
    found = run(
        "bench", "-b", broker.address, "--records", "20000", "--partitions", "3", "--singles", "50", "--json"
    ).json
    assert found["produce"]["records"] >= 20_000
    assert found["consume"]["records"] == found["produce"]["records"]
    assert found["single"]["records"] == 50
    for load in ("produce", "consume", "single"):
        assert found[load]["records_per_s"] > 0
        assert found[load]["p99_ms"] >= found[load]["p50_ms"] > 0
    with Wire(broker.address) as wire:
        assert wire.metadata().topics == []


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_bench_with_compression_and_acks_all(broker: BrokerProcess, codec: str) -> None:
    ran = run(
        "bench",
        "-b",
        broker.address,
        "--records",
        "2000",
        "--singles",
        "0",
        "--acks",
        "all",
        "--codec",
        codec,
    )
    assert re.search(r"^produce +2,\d\d\d ", ran.out, re.MULTILINE)
    assert "single" not in ran.out.splitlines()[-1]


def test_bench_ends_when_its_time_is_over(broker: BrokerProcess) -> None:
    ran = run("bench", "-b", broker.address, "--records", "100000000", "--size", "10", "--duration", "0.2")
    assert "the time ran out" in ran.error


def test_bench_without_a_broker() -> None:
    assert "no broker answers" in run("bench", "-b", "127.0.0.1:1", code=3).error


def test_bench_refuses_more_than_anybody_wants(broker: BrokerProcess) -> None:
    ran = run("bench", "-b", broker.address, "--records", "1000000000", "--size", "1000", code=2)
    assert "64.0 GiB" in ran.error
