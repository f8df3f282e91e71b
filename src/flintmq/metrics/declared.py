"""The list of metrics: the one source for `/metrics` and `docs/metrics.md`.

Names and types are an interface: dashboards and alerts (`deploy/`) use them. Counters end in `_total` and
begin at 0 with the process; times are in seconds, sizes in bytes. This module must not know who counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MetricType(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: MetricType
    doc: str
    labels: tuple[str, ...] = ()


_COUNTER, _GAUGE, _HISTOGRAM = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM
_API = ("api",)
PARTITION_LABELS = ("topic", "partition")

_BROKER = (
    Metric(
        "flintmq_build_info",
        _GAUGE,
        "Always 1; the labels say what runs.",
        ("version", "python", "loop"),
    ),
    Metric("flintmq_ready", _GAUGE, "1 while /health/ready answers 200, else 0."),
    Metric("flintmq_uptime_seconds", _GAUGE, "Time since the broker was started, recovery included."),
)

_REQUESTS = (
    Metric("flintmq_requests_total", _COUNTER, "Requests dispatched, by API (Kafka's name).", _API),
    Metric(
        "flintmq_request_errors_total",
        _COUNTER,
        "Requests whose answer holds this error code, in one place or in many.",
        ("api", "code"),
    ),
    Metric(
        "flintmq_request_seconds",
        _HISTOGRAM,
        "From the request's last byte to its answer's way to the socket; a long poll's waiting is part of it.",
        _API,
    ),
    Metric("flintmq_bytes_in_total", _COUNTER, "Bytes of requests received, by API.", _API),
    Metric("flintmq_bytes_out_total", _COUNTER, "Bytes of answers, by API.", _API),
    Metric(
        "flintmq_requests_in_flight",
        _GAUGE,
        "Requests that wait for their answer, long polls among them.",
    ),
)

_CONNECTIONS = (
    Metric("flintmq_connections", _GAUGE, "Open connections of clients."),
    Metric("flintmq_connections_total", _COUNTER, "Connections accepted."),
    Metric(
        "flintmq_connections_refused_total",
        _COUNTER,
        "Connections closed because of the client: `limit` (too many of them), `frame` (bytes that are no "
        "request), `request` (a request that cannot be answered), `stalled` (a request that stopped arriving), "
        "`handshake` (TLS failed, or the client was not known within flint.authentication.timeout.ms) or "
        "`authentication` (it failed).",
        ("reason",),
    ),
    Metric(
        "flintmq_authentications_total",
        _COUNTER,
        "Authentications and re-authentications that succeeded, by SASL mechanism; `SSL` is a client certificate, "
        "`HTTP` a request to the HTTP port.",
        ("mechanism",),
    ),
    Metric(
        "flintmq_authentication_failures_total",
        _COUNTER,
        "Authentications that failed, by SASL mechanism; `other` is one that is not enabled, `SSL` a failed "
        "handshake of a listener with TLS alone, `HTTP` a request to the HTTP port.",
        ("mechanism",),
    ),
    Metric(
        "flintmq_throttled_total",
        _COUNTER,
        "Requests whose client was throttled, by the quota that was exceeded; for `connection_creation_rate`, "
        "connections that were turned away.",
        ("quota",),
    ),
    Metric(
        "flintmq_throttle_seconds_total",
        _COUNTER,
        "Throttle times that clients were given, summed up, by the quota that was exceeded.",
        ("quota",),
    ),
    Metric(
        "flintmq_throttled_connections",
        _GAUGE,
        "Connections that are not read from because their client exceeded a quota.",
    ),
    Metric(
        "flintmq_unauthenticated_connections",
        _GAUGE,
        "Connections in the TLS handshake or in authentication.",
    ),
    Metric(
        "flintmq_certificate_expiry_timestamp_seconds",
        _GAUGE,
        "When the certificate of a listener with TLS expires, in seconds since the epoch.",
        ("listener",),
    ),
    Metric(
        "flintmq_authorization_denials_total",
        _COUNTER,
        "Operations on a resource that the authorizer denied to a client that named the resource.",
        ("operation",),
    ),
    Metric("flintmq_acls", _GAUGE, "ACLs in force; absent without an authorizer that has ACLs."),
    Metric("flintmq_audit_events_total", _COUNTER, "Events of the audit log; absent without one."),
    Metric(
        "flintmq_audit_events_left_out_total",
        _COUNTER,
        "Events that the audit log lacks: more than flint.audit.log.rate.max per second, or the disk failed.",
    ),
    Metric(
        "flintmq_client_connections",
        _GAUGE,
        "Open connections by the client's own name and version (KIP-511); the fifty most frequent, the rest as "
        "`other`.",
        ("software", "version"),
    ),
    Metric(
        "flintmq_memory_budget_bytes",
        _GAUGE,
        "Memory for arriving requests (queued.max.request.bytes).",
    ),
    Metric("flintmq_memory_budget_used_bytes", _GAUGE, "Memory that arriving requests take of it."),
    Metric(
        "flintmq_memory_budget_waiting",
        _GAUGE,
        "Connections that are not read from for want of that memory.",
    ),
    Metric("flintmq_fetch_sessions", _GAUGE, "Fetch sessions kept (KIP-227)."),
    Metric("flintmq_fetch_sessions_max", _GAUGE, "Fetch sessions that may be kept."),
)

_LOGS = (
    Metric("flintmq_topics", _GAUGE, "Topics in the cluster."),
    Metric("flintmq_partitions", _GAUGE, "Partitions served here."),
    Metric("flintmq_segments", _GAUGE, "Segments of all logs."),
    Metric(
        "flintmq_log_size_bytes",
        _GAUGE,
        "Size of a partition's log. Beyond flint.metrics.partitions.max the rest is summed with empty labels.",
        PARTITION_LABELS,
    ),
    Metric("flintmq_log_segments", _GAUGE, "Segments of a partition's log.", PARTITION_LABELS),
    Metric("flintmq_log_start_offset", _GAUGE, "First offset that still exists.", PARTITION_LABELS),
    Metric(
        "flintmq_log_end_offset",
        _GAUGE,
        "Offset of the next record.",
        PARTITION_LABELS,
    ),
    Metric(
        "flintmq_log_high_watermark",
        _GAUGE,
        "Records below it may be seen by consumers; what is above waits for a sync.",
        PARTITION_LABELS,
    ),
    Metric("flintmq_logs_offline", _GAUGE, "Logs that serve nothing, because a write or a sync failed."),
    Metric(
        "flintmq_corrupt_ranges",
        _GAUGE,
        "Ranges of offsets that are refused because their bytes are damaged.",
    ),
    Metric(
        "flintmq_repaired_ranges_total",
        _COUNTER,
        "Ranges of offsets that were damaged and have been copied from another replica.",
    ),
    Metric(
        "flintmq_log_flush_seconds",
        _HISTOGRAM,
        "Time of a sync of one log to the disk, its queueing included.",
    ),
    Metric(
        "flintmq_log_flush_failures_total",
        _COUNTER,
        "Syncs that failed, for whatever reason.",
    ),
    Metric(
        "flintmq_records_deleted_total",
        _COUNTER,
        "Records deleted from the beginning of logs, by offset.",
    ),
    Metric(
        "flintmq_retention_bytes_total",
        _COUNTER,
        "Bytes of segments that went because they were too old or too much (retention.ms, retention.bytes).",
    ),
    Metric(
        "flintmq_lake_endangered_partitions",
        _GAUGE,
        "Partitions with records that a lake table does not have and that retention is about to delete: within the "
        "next quarter of retention.ms or retention.bytes. Looked at every log.retention.check.interval.ms.",
    ),
    Metric(
        "flintmq_lake_held_bytes",
        _GAUGE,
        "Bytes that retention would have deleted and keeps for lake tables (flint.lake.hold).",
    ),
    Metric(
        "flintmq_lake_unsynced_deleted_total",
        _COUNTER,
        "Records that retention deleted before a lake table had them.",
    ),
    Metric("flintmq_compactions_total", _COUNTER, "Passes of compaction over a log, each to its end."),
    Metric("flintmq_compaction_bytes_total", _COUNTER, "Bytes of segments that these passes read."),
    Metric(
        "flintmq_uncleanable_partitions",
        _GAUGE,
        "Partitions that compaction has given up, because a batch of theirs is damaged.",
    ),
    Metric("flintmq_scrubbed_bytes_total", _COUNTER, "Bytes that the scrub has read to check them."),
    Metric("flintmq_disk_free_bytes", _GAUGE, "Room left on the volume of the data folder."),
    Metric("flintmq_disk_total_bytes", _GAUGE, "Size of that volume."),
    Metric("flintmq_recovery_seconds", _GAUGE, "Time that opening all logs took at the last start."),
    Metric(
        "flintmq_recovery_segments_scanned_total",
        _COUNTER,
        "Segments checked at the start.",
    ),
    Metric("flintmq_recovery_cut_bytes_total", _COUNTER, "Bytes cut from the ends of logs at the start."),
)

_PRODUCERS = (
    Metric(
        "flintmq_producers",
        _GAUGE,
        "Idempotent producers remembered, once for each partition they wrote to.",
    ),
    Metric(
        "flintmq_producer_duplicates_total",
        _COUNTER,
        "Batches sent again that were in the log already.",
    ),
    Metric(
        "flintmq_producer_out_of_order_total",
        _COUNTER,
        "Produce requests refused because a batch before theirs is missing.",
    ),
)

_TRANSACTIONS = (
    Metric(
        "flintmq_transactional_ids",
        _GAUGE,
        "Transactional ids known here, by the state of their last transaction (Kafka's names).",
        ("state",),
    ),
    Metric(
        "flintmq_transaction_age_seconds_max",
        _GAUGE,
        "Time since the oldest transaction that has not ended began; 0 if there is none.",
    ),
    Metric(
        "flintmq_transaction_markers_total",
        _COUNTER,
        "Ends of transactions written to partitions: `commit` or `abort`.",
        ("result",),
    ),
    Metric(
        "flintmq_transaction_markers_waiting",
        _GAUGE,
        "Ends that are decided and not in their partitions yet.",
    ),
    Metric(
        "flintmq_transaction_marker_retries_total",
        _COUNTER,
        "Ends that a partition did not take, and that are tried again.",
    ),
    Metric(
        "flintmq_unstable_partitions",
        _GAUGE,
        "Partitions with records that readers of committed records wait for.",
    ),
)

_PROCESS = (
    Metric(
        "flintmq_loop_delay_seconds",
        _GAUGE,
        "Longest time in the last 10 to 20 seconds that the event loop was late for a timer.",
    ),
    Metric("process_cpu_seconds_total", _COUNTER, "Processor time used, by user and system."),
    Metric(
        "process_resident_memory_bytes",
        _GAUGE,
        "Memory in use; pages of mapped files are part of it.",
    ),
    Metric("process_virtual_memory_bytes", _GAUGE, "Address space in use."),
    Metric("process_open_fds", _GAUGE, "Open descriptors: connections, segments and a few more."),
    Metric("process_max_fds", _GAUGE, "Descriptors that may be open."),
    Metric("process_threads", _GAUGE, "Threads of the process."),
    Metric("process_start_time_seconds", _GAUGE, "When the process was started, since the epoch."),
    Metric("python_gc_collections_total", _COUNTER, "Runs of the garbage collector.", ("generation",)),
    Metric("python_gc_objects_collected_total", _COUNTER, "Objects it freed.", ("generation",)),
)

SECTIONS: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    ("The broker", _BROKER),
    ("Requests", _REQUESTS),
    ("Connections and memory", _CONNECTIONS),
    ("Topics and logs", _LOGS),
    ("Idempotent producers", _PRODUCERS),
    ("Transactions", _TRANSACTIONS),
    ("The process", _PROCESS),
)

METRICS: tuple[Metric, ...] = tuple(metric for _, metrics in SECTIONS for metric in metrics)

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
