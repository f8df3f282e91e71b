"""Retention beside lake tables, in a broker whose clock the test holds (P4, Z7): the alarm, the hold and its bound.

Tables are played by what a sync leaves at the broker: committed offsets whose metadata names the table.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlsplit

import pytest

from flintmq.client.addresses import parse_addresses
from flintmq.client.admin.groups import delete_group, list_groups, set_offsets
from flintmq.client.admin.maintenance import topic_health
from flintmq.client.admin.topics import EARLIEST, LATEST, offsets
from flintmq.client.cluster import ClusterClient
from flintmq.metrics import parse
from flintmq.protocol.table_progress import progress_metadata
from flintmq.testing import Broker

TIMEOUT_S = 30.0
NOW_MS = 1_700_000_000_000
TOPIC = "orders"
GROUP = "lake-orders"
TABLE = "/srv/lake/orders"
LOGGER = "flintmq.partitions.maintenance.table_retention"
# A record of 300 bytes and its batch; two of them do not fit into a segment.
VALUE = "x" * 300
SEGMENT = {"segment.bytes": 500}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(
        log_retention_check_interval_ms=1000, log_segment_delete_delay_ms=0, flint_rest_port=0
    ) as started:
        started.clock.set(NOW_MS)
        yield started


@pytest.fixture
def client(broker: Broker) -> Iterator[ClusterClient]:
    with ClusterClient(parse_addresses(broker.bootstrap_servers), client_id="test") as connected:
        yield connected


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def metrics(broker: Broker) -> Mapping[str, float]:
    telemetry = broker._application._telemetry
    assert telemetry is not None
    assert telemetry.url is not None
    url = urlsplit(telemetry.url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        scrape = parse(connection.getresponse().read().decode())
    finally:
        connection.close()
    names = ("endangered_partitions", "held_bytes", "unsynced_deleted_total")
    return {name: scrape.total(f"flintmq_lake_{name}") for name in names}


def produce(broker: Broker, count: int) -> None:
    """A segment each, stamped with the broker's time."""
    for _ in range(count):
        broker.produce(TOPIC, VALUE, timestamp=broker.clock.now_ms())


def start_and_end(client: ClusterClient) -> tuple[int, int]:
    client.topic(TOPIC)
    partition = (TOPIC, 0)
    return offsets(client, [partition], EARLIEST)[partition], offsets(client, [partition], LATEST)[partition]


def publish(client: ClusterClient, offset: int, group: str = GROUP, table: str = TABLE) -> None:
    set_offsets(client, group, {(TOPIC, 0): offset}, metadata=progress_metadata(table))


def pass_over(broker: Broker, seconds: float = 1.0) -> None:
    """Let a pass of retention begin and end."""

    async def settled() -> None:
        running = broker._services.maintenance._running
        while "retention" in running:
            await asyncio.gather(running["retention"], return_exceptions=True)

    broker.clock.advance(seconds)
    broker._thread_running.run(settled())


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == LOGGER]


def risk(client: ClusterClient) -> str | None:
    """As `lake status` and `topic describe` show it."""
    client.topic(TOPIC)
    found = topic_health(client, TOPIC)
    return found[0].retention_risk if found else None


def test_a_table_that_is_late_is_told_of_before_anything_goes(
    broker: Broker, client: ClusterClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broker.create_topic(TOPIC, configs={"retention.ms": 40_000, **SEGMENT})
    produce(broker, 3)
    publish(client, 1)
    pass_over(broker, 30)
    assert metrics(broker)["endangered_partitions"] == 0
    assert risk(client) is None
    pass_over(broker)
    assert metrics(broker) == {"endangered_partitions": 1, "held_bytes": 0, "unsynced_deleted_total": 0}
    said = (
        f"orders-0: retention is about to delete records from offset 1 on, which the table {TABLE} (group {GROUP}) "
        "does not have; sync it, or keep more with retention.ms, retention.bytes or flint.lake.hold"
    )
    assert lines(caplog) == [said]
    assert risk(client) == said
    # Not again with every pass.
    pass_over(broker)
    assert lines(caplog) == [said]
    # The alarm ends when the table has them.
    publish(client, 3)
    assert risk(client) is None
    pass_over(broker)
    assert metrics(broker)["endangered_partitions"] == 0
    assert len(lines(caplog)) == 2


def test_what_goes_before_a_table_has_it_is_counted(
    broker: Broker, client: ClusterClient, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic(TOPIC, configs={"retention.ms": 10_000, **SEGMENT})
    produce(broker, 3)
    publish(client, 1)
    pass_over(broker, 11)
    wait_for(lambda: start_and_end(client) == (3, 3))
    assert metrics(broker)["unsynced_deleted_total"] == 2
    assert "retention deletes 2 records from offset 1 on" in lines(caplog)[-1]


def test_a_hold_keeps_what_the_table_does_not_have_and_ends_when_it_has(
    broker: Broker, client: ClusterClient, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic(TOPIC, configs={"retention.ms": 10_000, "flint.lake.hold": 100_000, **SEGMENT})
    produce(broker, 3)
    publish(client, 1)
    publish(client, 3, group="lake-fast", table="/srv/fast/orders")
    pass_over(broker, 60)
    # The slowest table counts; what all have goes.
    wait_for(lambda: start_and_end(client) == (1, 3))
    found = metrics(broker)
    assert (found["endangered_partitions"], found["unsynced_deleted_total"]) == (1, 0)
    assert 600 < found["held_bytes"] < 1000
    assert f"retention is held back for the table {TABLE} (group {GROUP})" in lines(caplog)[-1]
    assert "held back" in str(risk(client))
    publish(client, 2)
    pass_over(broker)
    wait_for(lambda: start_and_end(client) == (2, 3))
    publish(client, 3)
    pass_over(broker)
    wait_for(lambda: start_and_end(client) == (3, 3))
    assert metrics(broker) == {"endangered_partitions": 0, "held_bytes": 0, "unsynced_deleted_total": 0}


def test_a_table_that_is_abandoned_does_not_fill_the_disk(
    broker: Broker, client: ClusterClient, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic(TOPIC, configs={"retention.ms": 10_000, "flint.lake.hold": 1000, **SEGMENT})
    produce(broker, 6)
    publish(client, 0)
    pass_over(broker, 60)
    # Two segments of less than 400 bytes fit into the hold; the oldest go.
    wait_for(lambda: start_and_end(client) == (4, 6))
    found = metrics(broker)
    assert found["held_bytes"] <= 1000
    assert found["unsynced_deleted_total"] == 4
    assert "flint.lake.hold is reached (1000 bytes), and retention deletes 4 records" in lines(caplog)[-1]
    produce(broker, 3)
    pass_over(broker, 60)
    wait_for(lambda: start_and_end(client) == (7, 9))
    assert metrics(broker)["held_bytes"] <= 1000


def test_a_hold_outlives_a_restart(broker: Broker, client: ClusterClient) -> None:
    broker.create_topic(TOPIC, configs={"retention.ms": 10_000, "flint.lake.hold": 100_000, **SEGMENT})
    produce(broker, 3)
    publish(client, 1)
    broker.restart()
    # Waits until all groups are loaded: until then a pass keeps everything.
    assert [one.id for one in list_groups(client)] == [GROUP]
    pass_over(broker, 60)
    wait_for(lambda: start_and_end(client) == (1, 3))
    pass_over(broker)
    assert start_and_end(client) == (1, 3)
    assert metrics(broker)["held_bytes"] > 0


def test_while_groups_are_not_loaded_nothing_that_could_be_held_goes(
    broker: Broker, client: ClusterClient
) -> None:
    """A pass right after a start must not take tables that are not known yet for tables that do not exist."""
    broker.create_topic(TOPIC, configs={"retention.ms": 10_000, "flint.lake.hold": 100_000, **SEGMENT})
    produce(broker, 3)
    scheduler = broker._services.maintenance
    known = scheduler._table_offsets

    async def unknown() -> None:
        return None

    scheduler._table_offsets = unknown
    pass_over(broker, 60)
    assert start_and_end(client) == (0, 3)
    assert metrics(broker)["endangered_partitions"] == 0
    scheduler._table_offsets = known
    pass_over(broker)
    wait_for(lambda: start_and_end(client) == (3, 3))


@pytest.mark.parametrize("end", ["delete the group", "let its offsets expire"])
def test_a_hold_ends_with_the_group(client: ClusterClient, broker: Broker, end: str) -> None:
    broker.create_topic(TOPIC, configs={"retention.ms": 10_000, "flint.lake.hold": 100_000, **SEGMENT})
    produce(broker, 3)
    publish(client, 1)
    pass_over(broker, 60)
    wait_for(lambda: start_and_end(client) == (1, 3))
    if end == "delete the group":
        delete_group(client, GROUP)
    else:
        broker.clock.advance(8 * 24 * 3600)
        wait_for(lambda: GROUP not in broker.groups())
    pass_over(broker)
    wait_for(lambda: start_and_end(client) == (3, 3))
    assert metrics(broker)["endangered_partitions"] == 0


def test_a_consumer_group_holds_nothing(broker: Broker, client: ClusterClient) -> None:
    broker.create_topic(TOPIC, configs={"retention.ms": 10_000, "flint.lake.hold": 100_000, **SEGMENT})
    produce(broker, 3)
    set_offsets(client, "billing", {(TOPIC, 0): 1}, metadata="lake-like, but not")
    pass_over(broker, 60)
    wait_for(lambda: start_and_end(client) == (3, 3))
    assert metrics(broker)["unsynced_deleted_total"] == 0


def test_deletions_by_clients_are_not_held_back(broker: Broker, client: ClusterClient) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    broker.create_topic(TOPIC, configs={"retention.ms": 10_000, "flint.lake.hold": 100_000, **SEGMENT})
    produce(broker, 3)
    publish(client, 0)
    pass_over(broker, 60)
    assert start_and_end(client) == (0, 3)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(TOPIC, 0, 2)]).values():
        future.result(TIMEOUT_S)
    assert start_and_end(client) == (2, 3)
    broker.delete_topic(TOPIC)
    pass_over(broker)
    assert metrics(broker) == {"endangered_partitions": 0, "held_bytes": 0, "unsynced_deleted_total": 0}
    # A new topic of the name has no table.
    broker.create_topic(TOPIC, configs={"retention.ms": 10_000, "flint.lake.hold": 100_000, **SEGMENT})
    produce(broker, 2)
    pass_over(broker, 60)
    wait_for(lambda: start_and_end(client) == (2, 2))


def test_retention_on_demand_is_held_back_too(broker: Broker, client: ClusterClient) -> None:
    from flintmq.client.admin.maintenance import maintain_topic
    from flintmq.protocol.maintenance import MaintenanceAction

    broker.create_topic(TOPIC, configs={"retention.bytes": 0, "flint.lake.hold": 100_000, **SEGMENT})
    produce(broker, 3)
    publish(client, 1)
    maintain_topic(client, TOPIC, MaintenanceAction.RETAIN)
    assert start_and_end(client) == (1, 3)
    assert metrics(broker)["held_bytes"] > 0


def test_many_late_partitions_write_few_lines(
    broker: Broker, client: ClusterClient, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic(TOPIC, partitions=40, configs={"retention.ms": 40_000, **SEGMENT})
    for partition in range(40):
        broker.produce(TOPIC, VALUE, partition=partition, timestamp=broker.clock.now_ms())
    set_offsets(client, GROUP, {(TOPIC, one): 0 for one in range(40)}, metadata=progress_metadata(TABLE))
    pass_over(broker, 31)
    assert metrics(broker)["endangered_partitions"] == 40
    assert len(lines(caplog)) == 21
    pass_over(broker)
    assert len(lines(caplog)) == 21
