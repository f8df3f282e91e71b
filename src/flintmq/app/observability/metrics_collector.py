"""From the broker's counters to the text of a scrape.

Invariant: the loop is never kept for longer than a slice, however many partitions and connections there are;
what is told of one partition is of one moment, the whole is not. Collecting changes nothing.
"""

from __future__ import annotations

import asyncio
import gc
import platform
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from flintmq import __version__
from flintmq.app.audit_file import AuditFile
from flintmq.app.observability.health import Phase
from flintmq.app.observability.loop_delay import LoopDelay
from flintmq.app.observability.process_metrics import ProcessMetrics, read_process
from flintmq.broker.fetch_sessions import FetchSessions
from flintmq.coordinator.transactions.coordinator import TransactionCoordinator
from flintmq.coordinator.transactions.transaction import Transaction, TransactionState
from flintmq.effects import Clock, Disk, Executor
from flintmq.errors import ErrorCode
from flintmq.metadata.client_quotas import CLIENT_QUOTA_NAMES, IP_QUOTA_NAMES
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metrics import BY_NAME, Counters, Exposition
from flintmq.metrics.exposition import label_text
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.maintenance.scheduler import MaintenanceScheduler
from flintmq.security.audit import AuditLog
from flintmq.security.authorization.authorizer import StandardAuthorizer
from flintmq.server.closed_connections import CloseReason
from flintmq.server.listeners import Server
from flintmq.settings import BrokerConfig
from flintmq.storage.recovery.log_loader import RecoveryReport

if TYPE_CHECKING:
    from flintmq.server.tls.certificates import Certificates

T = TypeVar("T")

SLICE_S = 0.001
"""How long the loop may be kept at a time."""
_PER_LOOK = 16
_CLIENTS_MAX = 50
_OTHERS = ("other", "")
_UNKNOWN = ("unknown", "")
_BUDGET_MAX = 1 << 60
_OUT_OF_ORDER = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
_PARTITION = BY_NAME["flintmq_log_size_bytes"]
_LASTING_STATES = tuple(
    state
    for state in TransactionState
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
)
"""Those that an id can be found in."""


@dataclass(slots=True, kw_only=True)
class MetricsSources:
    """What there is of the broker so far: it can be looked at from the first moment on."""

    config: BrokerConfig
    path: str
    began: float
    """By the monotonic clock."""
    phase: Phase = Phase.STARTING
    metadata: ClusterMetadata | None = None
    metadata_failure: str | None = None
    partitions: LocalPartitions | None = None
    maintenance: MaintenanceScheduler | None = None
    transactions: TransactionCoordinator | None = None
    sessions: FetchSessions | None = None
    server: Server | None = None
    authorizer: StandardAuthorizer | None = None
    audit: tuple[AuditLog, AuditFile] | None = None
    rest_certificates: Certificates | None = None
    recovery_s: float | None = None
    segments_scanned: int = 0
    bytes_cut: int = 0

    def recovered(self, reports: Sequence[RecoveryReport], took_s: float) -> None:
        self.recovery_s = took_s
        self.segments_scanned = sum(report.segments_scanned for report in reports)
        self.bytes_cut = sum(report.bytes_cut for report in reports)

    @property
    def offline(self) -> list[str]:
        return [one.log.name for one in self.partitions or () if one.log.offline is not None]


class MetricsCollector:
    def __init__(
        self,
        parts: MetricsSources,
        counters: Counters,
        *,
        clock: Clock,
        disk: Disk,
        executor: Executor,
        loop_delay: LoopDelay,
    ) -> None:
        self._parts = parts
        self._counters = counters
        self._clock = clock
        self._disk = disk
        self._executor = executor
        self._loop_delay = loop_delay
        self._one_at_a_time = asyncio.Lock()

    async def collect(self, *, ready: bool) -> bytes:
        # Two at once would take two slices of each turn of the loop.
        async with self._one_at_a_time:
            out = Exposition()
            # In a thread: a volume that hangs must not stop the loop.
            usage, process = await self._executor.run(self._measure)
            out.add("flintmq_disk_total_bytes", usage[0])
            out.add("flintmq_disk_free_bytes", usage[1])
            out.add("flintmq_ready", int(ready))
            self._add_broker(out)
            self._add_process(out, process)
            self._add_requests(out)
            self._add_logs(out)
            await self._add_connections(out)
            await self._add_transactions(out)
            await self._add_partitions(out)
            return b"".join([piece.encode() async for piece in self._sliced(out.text())])

    def _measure(self) -> tuple[tuple[int, int], ProcessMetrics]:
        return self._disk.usage(self._parts.path), read_process()

    async def _sliced(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The items, with a turn for others whenever a slice is used up."""
        now = self._clock.monotonic
        began = now()
        for at, item in enumerate(items):
            yield item
            if at % _PER_LOOK == 0 and now() - began > SLICE_S:
                await asyncio.sleep(0)
                began = now()

    # ---- what is at hand

    def _add_broker(self, out: Exposition) -> None:
        parts = self._parts
        loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
        out.add("flintmq_build_info", 1, __version__, platform.python_version(), loop)
        out.add("flintmq_uptime_seconds", round(self._clock.monotonic() - parts.began, 3))
        out.add("flintmq_loop_delay_seconds", round(self._loop_delay.worst_s, 6))
        if parts.metadata is not None:
            out.add("flintmq_topics", len(parts.metadata.image.topics))
        if parts.sessions is not None:
            out.add("flintmq_fetch_sessions", len(parts.sessions))
            out.add("flintmq_fetch_sessions_max", parts.config.max_incremental_fetch_session_cache_slots)
        if parts.recovery_s is not None:
            out.add("flintmq_recovery_seconds", round(parts.recovery_s, 6))
            out.add("flintmq_recovery_segments_scanned_total", parts.segments_scanned)
            out.add("flintmq_recovery_cut_bytes_total", parts.bytes_cut)

    def _add_process(self, out: Exposition, metrics: ProcessMetrics) -> None:
        uptime_s = self._clock.monotonic() - self._parts.began
        out.add("process_cpu_seconds_total", round(metrics.cpu_seconds, 3))
        out.add("process_resident_memory_bytes", metrics.resident_bytes)
        if metrics.virtual_bytes:
            out.add("process_virtual_memory_bytes", metrics.virtual_bytes)
        out.add("process_open_fds", metrics.open_fds)
        out.add("process_max_fds", metrics.max_fds)
        out.add("process_threads", metrics.threads)
        out.add("process_start_time_seconds", round(self._clock.now_ms() / 1000 - uptime_s, 1))
        for generation, stats in enumerate(gc.get_stats()):
            out.add("python_gc_collections_total", stats["collections"], generation)
            out.add("python_gc_objects_collected_total", stats["collected"], generation)

    def _add_requests(self, out: Exposition) -> None:
        """APIs that nobody has used have no series; those that can be used are in the documentation."""
        for name, api in self._counters.apis.items():
            if not api.requests:
                continue
            out.add("flintmq_requests_total", api.requests, name)
            out.add("flintmq_bytes_in_total", api.bytes_in, name)
            out.add("flintmq_bytes_out_total", api.bytes_out, name)
            out.add_histogram("flintmq_request_seconds", api.buckets, api.seconds, name)
            for code, count in sorted(api.errors.items()):
                out.add("flintmq_request_errors_total", count, name, error_name(code))
        produce = self._counters.apis.get("Produce")
        out.add("flintmq_producer_out_of_order_total", produce.errors[_OUT_OF_ORDER] if produce else 0)

    def _add_logs(self, out: Exposition) -> None:
        logs = self._counters.logs
        out.add_histogram("flintmq_log_flush_seconds", logs.buckets, logs.flush_seconds)
        out.add("flintmq_log_flush_failures_total", logs.flush_failures)
        out.add("flintmq_records_deleted_total", logs.records_deleted)
        out.add("flintmq_producer_duplicates_total", logs.duplicates)
        out.add("flintmq_retention_bytes_total", logs.retention_bytes)
        out.add("flintmq_lake_unsynced_deleted_total", logs.unsynced_deleted)
        tables = self._parts.maintenance.tables if self._parts.maintenance is not None else None
        out.add("flintmq_lake_endangered_partitions", tables.endangered if tables else 0)
        out.add("flintmq_lake_held_bytes", tables.held_bytes if tables else 0)
        out.add("flintmq_compactions_total", logs.compactions)
        out.add("flintmq_compaction_bytes_total", logs.compaction_bytes)
        out.add("flintmq_scrubbed_bytes_total", logs.scrubbed_bytes)
        out.add("flintmq_repaired_ranges_total", logs.repaired_ranges)

    # ---- what must be walked through

    async def _add_connections(self, out: Exposition) -> None:
        counters, server = self._counters.connections, self._parts.server
        out.add("flintmq_connections_total", counters.accepted)
        for kind in CloseReason:
            out.add("flintmq_connections_refused_total", counters.refused[kind.value], kind.value)
        authentications = self._counters.authentications
        for mechanism, count in sorted(authentications.succeeded.items()):
            out.add("flintmq_authentications_total", count, mechanism)
        for mechanism, count in sorted(authentications.failed.items()):
            out.add("flintmq_authentication_failures_total", count, mechanism)
        quotas = self._counters.quotas
        for quota in (*CLIENT_QUOTA_NAMES, *IP_QUOTA_NAMES):
            out.add("flintmq_throttled_total", quotas.throttled[quota], quota)
            out.add(
                "flintmq_throttle_seconds_total", round(quotas.throttled_seconds.get(quota, 0.0), 3), quota
            )
        for operation, count in sorted(self._counters.denials.items()):
            out.add("flintmq_authorization_denials_total", count, operation)
        if self._parts.authorizer is not None:
            out.add("flintmq_acls", len(self._parts.authorizer))
        if self._parts.audit is not None:
            log, file = self._parts.audit
            out.add("flintmq_audit_events_total", log.written)
            out.add("flintmq_audit_events_left_out_total", log.left_out + file.lost)
        if self._parts.rest_certificates is not None:
            for listener, one in self._parts.rest_certificates.listeners.items():
                expires_s = one.context.certificate.not_after
                out.add("flintmq_certificate_expiry_timestamp_seconds", expires_s, listener)
        if server is None:
            return
        out.add("flintmq_throttled_connections", server.throttled)
        budget = server.budget
        if budget.limit < _BUDGET_MAX:
            out.add("flintmq_memory_budget_bytes", budget.limit)
        out.add("flintmq_memory_budget_used_bytes", budget.used)
        out.add("flintmq_memory_budget_waiting", budget.waiting)
        out.add("flintmq_unauthenticated_connections", server.unauthenticated)
        for listener, expiry_s in server.certificate_expiry().items():
            out.add("flintmq_certificate_expiry_timestamp_seconds", expiry_s, listener)
        connections = server.connections
        clients: Counter[tuple[str, str]] = Counter()
        in_flight = 0
        async for connection in self._sliced(connections):
            clients[connection.session.client_software or _UNKNOWN] += 1
            in_flight += connection.in_flight
        out.add("flintmq_connections", len(connections))
        out.add("flintmq_requests_in_flight", in_flight)
        # Clients choose these names: their number must not be up to them.
        shown = clients.most_common(_CLIENTS_MAX)
        rest = len(connections) - sum(count for _, count in shown)
        for (software, version), count in shown:
            out.add("flintmq_client_connections", count, software, version)
        if rest:
            out.add("flintmq_client_connections", rest, *_OTHERS)

    async def _add_transactions(self, out: Exposition) -> None:
        counters, coordinator = self._counters.transactions, self._parts.transactions
        out.add("flintmq_transaction_markers_total", counters.markers_committed, "commit")
        out.add("flintmq_transaction_markers_total", counters.markers_aborted, "abort")
        out.add("flintmq_transaction_marker_retries_total", counters.markers_retried)
        if coordinator is None:
            return
        out.add("flintmq_transaction_markers_waiting", coordinator.markers_waiting)
        states: Counter[TransactionState] = Counter()
        now_ms = oldest_ms = self._clock.now_ms()
        async for one in self._sliced(_transactions_of(coordinator)):
            states[one.state] += 1
            if one.state is TransactionState.ONGOING or one.is_decided:
                oldest_ms = min(oldest_ms, one.start_ms)
        for state in _LASTING_STATES:
            out.add("flintmq_transactional_ids", states[state], state.title)
        out.add("flintmq_transaction_age_seconds_max", (now_ms - oldest_ms) / 1000)

    async def _add_partitions(self, out: Exposition) -> None:
        partitions = list(self._parts.partitions or ())
        cleaner = self._parts.maintenance.cleaner if self._parts.maintenance is not None else None
        own_series_max = self._parts.config.flint_metrics_partitions_max
        segments = offline = corrupt = uncleanable = producers = unstable = rest_bytes = 0
        place = 0
        async for partition in self._sliced(partitions):
            log = partition.log
            size, count = log.size, len(log.segments)
            segments += count
            offline += log.offline is not None
            corrupt += len(log.corrupt)
            uncleanable += cleaner is not None and cleaner.gave_up(partition)
            producers += len(log.producers)
            unstable += log.last_stable_offset < log.high_watermark
            place += 1
            if place > own_series_max:
                rest_bytes += size
                continue
            labels = label_text(_PARTITION, partition.topic, partition.index)
            out.add_labelled("flintmq_log_size_bytes", size, labels)
            out.add_labelled("flintmq_log_segments", count, labels)
            out.add_labelled("flintmq_log_start_offset", log.start_offset, labels)
            out.add_labelled("flintmq_log_end_offset", log.end_offset, labels)
            out.add_labelled("flintmq_log_high_watermark", log.high_watermark, labels)
        if place > own_series_max:
            out.add("flintmq_log_size_bytes", rest_bytes, "", "")
        out.add("flintmq_partitions", len(partitions))
        out.add("flintmq_segments", segments)
        out.add("flintmq_logs_offline", offline)
        out.add("flintmq_corrupt_ranges", corrupt)
        out.add("flintmq_uncleanable_partitions", uncleanable)
        out.add("flintmq_producers", producers)
        out.add("flintmq_unstable_partitions", unstable)


def _transactions_of(coordinator: TransactionCoordinator) -> Iterator[Transaction]:
    """Shard by shard, each as it is when it is its turn."""
    for shard in coordinator:
        yield from shard.machine.known()


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
