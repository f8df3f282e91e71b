"""What a real broker tells over HTTP while clients use it (B8, B9, F12)."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator

import pytest

from flintmq.errors import ErrorCode
from flintmq.metrics import BY_NAME, Scrape, parse
from flintmq.metrics.exposition import series_of
from flintmq.protocol.messages import ApiVersionsRequest
from support.broker.broker_process import BrokerFailed, BrokerProcess, StartBroker
from support.wire.wire import Wire, batch_of, fetch_request

FREE_PORT = ("--set", "flint.rest.port=0")
PARTITIONS = 1000


def address_of(broker: BrokerProcess) -> tuple[str, int]:
    """As the banner tells it, which is written before the broker is ready."""
    found = re.search(r"http://(\S+):(\d+) ", broker.errors)
    assert found is not None, broker.errors
    return found[1], int(found[2])


def get(broker: BrokerProcess, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(*address_of(broker), timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def scrape(broker: BrokerProcess) -> Scrape:
    status, text = get(broker, "/metrics")
    assert status == 200
    return parse(text)


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(*FREE_PORT)


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.address) as wire:
        yield wire


def test_what_clients_do_is_counted(broker: BrokerProcess, wire: Wire) -> None:
    request = ApiVersionsRequest(client_software_name="a-client", client_software_version="1.2.3")
    wire.ask(request, 3)
    wire.create_topic("orders", 2)
    batch = batch_of(b"x" * 1000)
    for _ in range(5):
        assert wire.produce("orders", batch, partition=1).error_code == 0
    wire.fetch(fetch_request("orders", {1: 0}))
    assert wire.produce("nowhere", batch).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = scrape(broker)
    assert found.total("flintmq_requests_total", api="Produce") == 6
    assert found.by("flintmq_request_errors_total", "api", "code") == {
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 1
    }
    assert found.total("flintmq_request_seconds_count", api="Produce") == 6
    assert found.total("flintmq_bytes_in_total", api="Produce") > 6 * len(batch)
    assert found.total("flintmq_bytes_out_total", api="Fetch") > 5 * len(batch), "file ranges count too"
    assert found.total("flintmq_connections") == 1
    assert found.total("flintmq_client_connections", software="a-client", version="1.2.3") == 1
    assert found.total("flintmq_log_end_offset", topic="orders", partition="1") == 5
    assert found.total("flintmq_log_size_bytes") == 5 * len(batch)
    assert (found.total("flintmq_topics"), found.total("flintmq_partitions")) == (1, 2)
    assert found.total("flintmq_disk_total_bytes") > found.total("flintmq_disk_free_bytes") > 0


def test_nothing_is_told_that_is_not_declared(broker: BrokerProcess, wire: Wire) -> None:
    wire.create_topic("t")
    wire.produce("t", batch_of(b"x"))
    declared = {name for metric in BY_NAME.values() for name in series_of(metric)}
    assert scrape(broker).samples.keys() <= declared


def test_a_flushed_log_shows_its_syncs(broker: BrokerProcess, wire: Wire) -> None:
    wire.create_topic("safe", flush_messages="1")
    for _ in range(3):
        wire.produce("safe", batch_of(b"x"))
    found = scrape(broker)
    assert found.total("flintmq_log_flush_seconds_count") == 3
    assert found.total("flintmq_log_flush_seconds_sum") > 0


def test_refused_connections_are_counted_by_their_reason(broker: BrokerProcess) -> None:
    with Wire(broker.address) as bad:
        bad.sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert bad.is_closed_by_the_broker()
    assert scrape(broker).total("flintmq_connections_refused_total", reason="frame") == 1


def test_what_recovery_did_is_told_after_a_crash(broker: BrokerProcess, wire: Wire) -> None:
    wire.create_topic("t")
    wire.produce("t", batch_of(b"x"))
    broker.kill()
    log = broker.data_dir / "t-0" / f"{0:020d}.log"
    with log.open("ab") as file:
        file.write(b"torn")
    broker.error_log.unlink()
    broker.start()
    found = scrape(broker)
    assert found.total("flintmq_recovery_cut_bytes_total") == 4
    assert found.total("flintmq_recovery_segments_scanned_total") == 1
    assert found.total("flintmq_recovery_seconds") > 0


def test_pages_for_people_and_probes(broker: BrokerProcess) -> None:
    status, text = get(broker, "/health/ready")
    assert (status, json.loads(text)["status"]) == (200, "ready")
    assert get(broker, "/health/live")[0] == 200
    overview = json.loads(get(broker, "/")[1])
    assert overview["listeners"][0].endswith(f":{broker.port}")
    assert get(broker, "/metrics", "HEAD") == (200, "")
    assert get(broker, "/metrics", "POST")[0] == 405
    assert get(broker, "/topics")[0] == 404


def test_a_chosen_port_that_is_taken_stops_the_start(start_broker: StartBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BrokerFailed, match=rf"code 2 (?s:.*)127\.0\.0\.1:{port} for HTTP"):
            start_broker(env={"REST_PORT": str(port)})


def test_without_the_listener_the_broker_works(start_broker: StartBroker) -> None:
    broker = start_broker("--set", "flint.rest.port=-1")
    assert "http://" not in broker.errors
    with Wire(broker.address) as wire:
        assert wire.metadata().brokers


def test_clients_are_answered_while_a_thousand_partitions_are_scraped(start_broker: StartBroker) -> None:
    # A client of another test that looks for its broker on this port may bring a topic of its own; with the default
    # of `flint.metrics.partitions.max` one partition more would take a series from this topic.
    broker = start_broker(*FREE_PORT, "--set", f"flint.metrics.partitions.max={2 * PARTITIONS}")
    with Wire(broker.address) as wire:
        last = scrape_under_load(broker, wire)
    sizes = [labels for labels, _ in last.samples["flintmq_log_size_bytes"] if labels["topic"] == "many"]
    assert len(sizes) == PARTITIONS
    # Wide, for machines that are busy with other tests; how long one slice takes is tested by processor time.
    assert last.total("flintmq_request_seconds_bucket", api="Produce", le="0.5") == last.total(
        "flintmq_request_seconds_count", api="Produce"
    )


def scrape_under_load(broker: BrokerProcess, wire: Wire) -> Scrape:
    """Write to one of many partitions until the broker was scraped a few times; return the last scrape."""
    wire.create_topic("many", PARTITIONS)
    over = threading.Event()
    scrapes: list[Scrape] = []

    def keep_scraping() -> None:
        while not over.is_set():
            scrapes.append(scrape(broker))

    scraper = threading.Thread(target=keep_scraping)
    scraper.start()
    try:
        batch = batch_of(b"x")
        while len(scrapes) < 5:
            assert wire.produce("many", batch).error_code == 0
    finally:
        over.set()
        scraper.join()
    return scrapes[-1]
