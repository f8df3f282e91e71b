"""A scrape: everything declared is told, and the loop never waits for it (F12)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flintmq.app.observability.health import Phase
from flintmq.app.observability.loop_delay import LoopDelay
from flintmq.app.observability.metrics_collector import MetricsCollector, MetricsSources
from flintmq.coordinator.transactions.transaction import Transaction, TransactionState
from flintmq.effects.real import LoopExecutor, RealDisk, SystemClock
from flintmq.errors import ErrorCode
from flintmq.metrics import METRICS, ApiCounters, Counters, Scrape, parse
from flintmq.metrics.exposition import series_of
from flintmq.security.audit import AuditLog
from flintmq.security.authorization.authorizer import StandardAuthorizer
from flintmq.server.inbound_budget import InboundBudget
from flintmq.settings import BrokerConfig

LOOP_KEPT_S_MAX = 0.005


def a_partition(index: int, **log: Any) -> Any:
    fields = {
        "size": 1000 + index,
        "segments": [None] * 3,
        "start_offset": 1,
        "end_offset": 10 * index,
        "high_watermark": 10 * index,
        "last_stable_offset": 10 * index,
        "offline": None,
        "corrupt": [],
        "producers": (),
        "name": f"a-topic-with-an-ordinary-name-{index}",
    }
    return SimpleNamespace(
        topic="a-topic-with-an-ordinary-name", index=index, log=SimpleNamespace(**{**fields, **log})
    )


def a_connection(software: tuple[str, str] | None) -> Any:
    return SimpleNamespace(session=SimpleNamespace(client_software=software), in_flight=1)


def parts_of(
    partitions: list[Any], connections: list[Any] | None = None, config: BrokerConfig | None = None
) -> MetricsSources:
    parts = MetricsSources(
        config=config or BrokerConfig(), path=".", began=time.monotonic() - 5, phase=Phase.RUNNING
    )
    parts.partitions = cast(Any, partitions)
    parts.server = cast(
        Any,
        SimpleNamespace(
            budget=InboundBudget(1 << 20),
            connections=connections or [],
            bound=[],
            throttled=1,
            unauthenticated=0,
            certificate_expiry=lambda: {"CLIENTS": 1.0},
        ),
    )
    parts.metadata = cast(Any, SimpleNamespace(image=SimpleNamespace(topics={"a": None})))
    parts.sessions = cast(Any, [1, 2])
    parts.maintenance = cast(
        Any,
        SimpleNamespace(
            cleaner=SimpleNamespace(gave_up=lambda one: one.index == 1),
            tables=SimpleNamespace(endangered=2, held_bytes=4096),
        ),
    )
    parts.transactions = coordinator_of([])
    parts.recovered([], 1.5)
    return parts


def coordinator_of(transactions: list[Transaction], waiting: int = 0) -> Any:
    """Of two shards, with these in the second."""

    class Coordinator:
        markers_waiting = waiting

        def __iter__(self) -> Iterator[Any]:
            for known in ([], transactions):
                yield SimpleNamespace(machine=SimpleNamespace(known=lambda known=known: known))

    return Coordinator()


def scrape_of(parts: MetricsSources, counters: Counters | None = None) -> tuple[Scrape, list[float]]:
    """The scrape, and how much processor time passed between two turns of somebody else on the loop."""

    async def scenario() -> tuple[Scrape, list[float]]:
        loop, clock = asyncio.get_running_loop(), SystemClock()
        executor = LoopExecutor(loop, 1)
        collector = MetricsCollector(
            parts,
            counters or Counters(),
            clock=clock,
            disk=RealDisk(),
            executor=executor,
            loop_delay=LoopDelay(timers=loop, clock=clock),
        )
        gaps: list[float] = []

        async def somebody_else() -> None:
            before = time.thread_time()
            while True:
                await asyncio.sleep(0)
                now = time.thread_time()
                gaps.append(now - before)
                before = now

        other = asyncio.create_task(somebody_else())
        await asyncio.sleep(0)
        try:
            body = await collector.collect(ready=True)
        finally:
            other.cancel()
            executor.close()
        return parse(body.decode()), gaps

    return asyncio.run(scenario())


def test_everything_that_is_declared_is_told() -> None:
    counters = Counters()
    api = counters.apis["Produce"] = ApiCounters(lambda: 0.0)
    api.requests = 3
    api.errors[ErrorCode.CORRUPT_MESSAGE] = 2
    counters.authentications.succeeded["PLAIN"] = 1
    counters.authentications.failed["PLAIN"] = 1
    counters.denials["WRITE"] = 4
    parts = parts_of([a_partition(0)], [a_connection(("librdkafka", "2.15"))])
    parts.authorizer = StandardAuthorizer()
    audit = AuditLog(clock=SystemClock(), write=lambda _: True, rate_max=1)
    parts.audit = audit, SimpleNamespace(lost=0)  # type: ignore[assignment]
    scrape, _ = scrape_of(parts, counters)
    expected = {name for metric in METRICS for name in series_of(metric)}
    assert scrape.samples.keys() == expected
    assert scrape.by("flintmq_request_errors_total", "api", "code") == {("Produce", "CORRUPT_MESSAGE"): 2}
    assert scrape.by("flintmq_authorization_denials_total", "operation") == {("WRITE",): 4}
    assert scrape.total("flintmq_recovery_seconds") == 1.5
    assert scrape.total("process_open_fds") > 3
    assert scrape.total("process_resident_memory_bytes") > 1 << 20


def test_a_thousand_partitions_do_not_keep_the_loop() -> None:
    scrape, gaps = scrape_of(parts_of([a_partition(index) for index in range(1000)]))
    assert len(scrape.samples["flintmq_log_end_offset"]) == 1000
    assert max(gaps) < LOOP_KEPT_S_MAX
    assert len(gaps) > 3, "nobody else had a turn"


def test_ten_thousand_connections_do_not_keep_the_loop() -> None:
    connections = [a_connection(("client", str(number % 7))) for number in range(10_000)]
    scrape, gaps = scrape_of(parts_of([], connections))
    assert scrape.total("flintmq_client_connections") == scrape.total("flintmq_connections") == 10_000
    assert scrape.total("flintmq_requests_in_flight") == 10_000
    assert max(gaps) < LOOP_KEPT_S_MAX


def test_partitions_beyond_the_setting_are_one_sum() -> None:
    config = BrokerConfig(flint_metrics_partitions_max=2)
    scrape, _ = scrape_of(parts_of([a_partition(index) for index in range(5)], config=config))
    assert scrape.by("flintmq_log_size_bytes", "partition") == {("0",): 1000, ("1",): 1001, ("",): 3009}
    assert len(scrape.samples["flintmq_log_end_offset"]) == 2
    assert (scrape.total("flintmq_partitions"), scrape.total("flintmq_segments")) == (5, 15)


def test_clients_cannot_make_series_without_end() -> None:
    connections = [a_connection((f"client-{number}", "1")) for number in range(500)] + [a_connection(None)]
    scrape, _ = scrape_of(parts_of([], connections))
    names = scrape.by("flintmq_client_connections", "software")
    assert len(names) == 51
    assert sum(names.values()) == 501
    assert names[("other",)] == 451


def test_logs_that_are_offline_or_damaged_are_counted() -> None:
    bad = [a_partition(0, offline="fsync failed"), a_partition(1, corrupt=[(0, 1), (4, 9)]), a_partition(2)]
    scrape, _ = scrape_of(parts_of(bad))
    assert (scrape.total("flintmq_logs_offline"), scrape.total("flintmq_corrupt_ranges")) == (1, 2)
    assert scrape.total("flintmq_uncleanable_partitions") == 1


def test_what_upkeep_did_is_counted() -> None:
    counters = Counters()
    logs = counters.logs
    names = ("retention_bytes", "compactions", "compaction_bytes", "scrubbed_bytes", "repaired_ranges")
    for at, name in enumerate(names, 1):
        setattr(logs, name, at)
    scrape, _ = scrape_of(parts_of([]), counters)
    for at, name in enumerate(names, 1):
        assert scrape.total(f"flintmq_{name}_total") == at


def test_transactions_are_counted_by_state_and_the_oldest_is_known() -> None:
    now_ms = SystemClock().now_ms()
    known = [
        Transaction("a", 1, state=TransactionState.ONGOING, start_ms=now_ms - 90_000),
        Transaction("b", 2, state=TransactionState.PREPARE_ABORT, start_ms=now_ms - 30_000),
        # What is over is not old, however long ago it began.
        Transaction("c", 3, state=TransactionState.COMPLETE_COMMIT, start_ms=5),
        Transaction("d", 4),
        Transaction("e", 5),
    ]
    parts = parts_of([a_partition(1, last_stable_offset=3), a_partition(2)])
    parts.transactions = coordinator_of(known, waiting=4)
    counters = Counters()
    transactions = counters.transactions
    transactions.markers_committed, transactions.markers_aborted, transactions.markers_retried = 7, 8, 9
    scrape, _ = scrape_of(parts, counters)
    assert scrape.by("flintmq_transactional_ids", "state") == {
        ("Empty",): 2,
        ("Ongoing",): 1,
        ("PrepareCommit",): 0,
        ("PrepareAbort",): 1,
        ("CompleteCommit",): 1,
        ("CompleteAbort",): 0,
    }
    assert 90 <= scrape.total("flintmq_transaction_age_seconds_max") < 120
    assert scrape.by("flintmq_transaction_markers_total", "result") == {("commit",): 7, ("abort",): 8}
    assert scrape.total("flintmq_transaction_marker_retries_total") == 9
    assert scrape.total("flintmq_transaction_markers_waiting") == 4
    assert scrape.total("flintmq_unstable_partitions") == 1


def test_a_hundred_thousand_transactional_ids_do_not_keep_the_loop() -> None:
    parts = parts_of([])
    parts.transactions = coordinator_of([Transaction(f"id-{number}", number) for number in range(100_000)])
    scrape, gaps = scrape_of(parts)
    assert scrape.total("flintmq_transactional_ids") == 100_000
    assert scrape.total("flintmq_transaction_age_seconds_max") == 0
    assert max(gaps) < LOOP_KEPT_S_MAX
    assert len(gaps) > 3, "nobody else had a turn"


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RECOVERING])
def test_a_broker_that_is_not_there_yet_can_be_scraped(phase: Phase) -> None:
    parts = MetricsSources(config=BrokerConfig(), path=".", began=time.monotonic(), phase=phase)
    scrape, _ = scrape_of(parts)
    assert scrape.total("process_resident_memory_bytes") > 0
    assert "flintmq_connections" not in scrape.samples
    assert scrape.total("flintmq_partitions") == 0
