"""From two scrapes of a broker's metrics to what happens there in a second. Pure.

Counters begin again when a broker is restarted: what is lower than before counts from 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flintmq.metrics import Scrape

PARTITIONS_SHOWN = 10
CLIENTS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class ApiRates:
    name: str
    requests_per_s: float
    errors_per_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float
    p50_ms: float | None
    """Of the requests since the scrape before; None if there were none."""
    p99_ms: float | None


@dataclass(frozen=True, slots=True)
class PartitionRates:
    topic: str
    partition: int
    records_per_s: float
    size_bytes: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class ClientRates:
    software: str
    version: str
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRates:
    version: str
    ready: bool
    uptime_s: float
    requests_per_s: float
    errors_per_s: float
    records_in_per_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float
    connections: int
    requests_in_flight: int
    topics: int
    partitions: int
    logs_offline: int
    log_bytes: int
    cpu_cores: float
    resident_bytes: int
    budget_used_bytes: int
    budget_bytes: int
    loop_delay_ms: float
    disk_free_bytes: int
    disk_total_bytes: int
    apis: Sequence[ApiRates]
    busiest_partitions: Sequence[PartitionRates]
    clients: Sequence[ClientRates]


def compare(before: Scrape, after: Scrape, elapsed_s: float) -> BrokerRates:
    """What happened in the `elapsed_s` between the two, and how things stand after."""

    def rate(name: str) -> float:
        return _increase(before.total(name), after.total(name)) / elapsed_s

    builds = after.by("flintmq_build_info", "version")
    partitions = _partitions(before, after, elapsed_s)
    return BrokerRates(
        version=next(iter(builds))[0] if builds else "?",
        ready=after.total("flintmq_ready") > 0,
        uptime_s=after.total("flintmq_uptime_seconds"),
        requests_per_s=rate("flintmq_requests_total"),
        errors_per_s=rate("flintmq_request_errors_total"),
        records_in_per_s=sum(one.records_per_s for one in partitions),
        bytes_in_per_s=rate("flintmq_bytes_in_total"),
        bytes_out_per_s=rate("flintmq_bytes_out_total"),
        connections=int(after.total("flintmq_connections")),
        requests_in_flight=int(after.total("flintmq_requests_in_flight")),
        topics=int(after.total("flintmq_topics")),
        partitions=int(after.total("flintmq_partitions")),
        logs_offline=int(after.total("flintmq_logs_offline")),
        log_bytes=int(after.total("flintmq_log_size_bytes")),
        cpu_cores=rate("process_cpu_seconds_total"),
        resident_bytes=int(after.total("process_resident_memory_bytes")),
        budget_used_bytes=int(after.total("flintmq_memory_budget_used_bytes")),
        budget_bytes=int(after.total("flintmq_memory_budget_bytes")),
        loop_delay_ms=after.total("flintmq_loop_delay_seconds") * 1000,
        disk_free_bytes=int(after.total("flintmq_disk_free_bytes")),
        disk_total_bytes=int(after.total("flintmq_disk_total_bytes")),
        apis=_apis(before, after, elapsed_s),
        busiest_partitions=sorted(partitions, key=lambda one: (-one.records_per_s, -one.size_bytes))[
            :PARTITIONS_SHOWN
        ],
        clients=_clients(after),
    )


def _increase(before: float, after: float) -> float:
    return after - before if after >= before else after


def _apis(before: Scrape, after: Scrape, elapsed_s: float) -> list[ApiRates]:
    def rates(name: str) -> dict[str, float]:
        old = before.by(name, "api")
        return {
            key[0]: _increase(old.get(key, 0.0), value) / elapsed_s
            for key, value in after.by(name, "api").items()
        }

    requests, errors = rates("flintmq_requests_total"), rates("flintmq_request_errors_total")
    bytes_in, bytes_out = rates("flintmq_bytes_in_total"), rates("flintmq_bytes_out_total")
    old_buckets = before.by("flintmq_request_seconds_bucket", "api", "le")
    buckets: dict[str, dict[float, float]] = {}
    for (api, bound), count in after.by("flintmq_request_seconds_bucket", "api", "le").items():
        buckets.setdefault(api, {})[float(bound)] = _increase(old_buckets.get((api, bound), 0.0), count)
    by_api = [
        ApiRates(
            name,
            per_s,
            errors.get(name, 0.0),
            bytes_in.get(name, 0.0),
            bytes_out.get(name, 0.0),
            quantile_ms(0.5, buckets.get(name, {})),
            quantile_ms(0.99, buckets.get(name, {})),
        )
        for name, per_s in requests.items()
    ]
    return sorted(by_api, key=lambda one: (-one.requests_per_s, one.name))


def quantile_ms(share: float, buckets: Mapping[float, float]) -> float | None:
    """From cumulative counts by upper bound in seconds, evenly spread within a bucket; None without any."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if not total:
        return None
    wanted = share * total
    lower, below = 0.0, 0.0
    for bound in bounds:
        inside = buckets[bound] - below
        if buckets[bound] >= wanted and inside > 0:
            # Above the last bound nothing is known but that it is above.
            upper = lower if math.isinf(bound) else bound
            return (lower + (upper - lower) * (wanted - below) / inside) * 1000
        lower, below = bound, buckets[bound]
    return None


def _partitions(before: Scrape, after: Scrape, elapsed_s: float) -> list[PartitionRates]:
    labels = ("topic", "partition")
    old = before.by("flintmq_log_end_offset", *labels)
    sizes = after.by("flintmq_log_size_bytes", *labels)
    return [
        PartitionRates(
            topic=topic,
            partition=int(index),
            records_per_s=_increase(old.get((topic, index), 0.0), end) / elapsed_s,
            size_bytes=int(sizes.get((topic, index), 0.0)),
            end_offset=int(end),
        )
        for (topic, index), end in after.by("flintmq_log_end_offset", *labels).items()
    ]


def _clients(after: Scrape) -> list[ClientRates]:
    found = after.by("flintmq_client_connections", "software", "version")
    clients = [ClientRates(software, version, int(count)) for (software, version), count in found.items()]
    return sorted(clients, key=lambda one: (-one.connections, one.software, one.version))[:CLIENTS_SHOWN]
