"""What the broker counts of itself, and how it is told.

    declared     THE list: name, kind, labels and meaning of every metric
    counters     plain numbers in slotted objects, bumped where things happen
    exposition   the text that Prometheus reads, written and read

Pure, and below everything that counts: nothing here knows a request, a log or a clock.
"""

from __future__ import annotations

from flintmq.metrics.counters import (
    LATENCY_BOUNDS_S,
    UNCOUNTED,
    ApiCounters,
    AuthenticationCounters,
    ConnectionCounters,
    Counters,
    LogCounters,
    QuotaCounters,
    TransactionCounters,
)
from flintmq.metrics.declared import BY_NAME, METRICS, Metric, MetricType
from flintmq.metrics.exposition import CONTENT_TYPE, Exposition, Scrape, parse

__all__ = [
    "BY_NAME",
    "CONTENT_TYPE",
    "LATENCY_BOUNDS_S",
    "METRICS",
    "UNCOUNTED",
    "ApiCounters",
    "AuthenticationCounters",
    "ConnectionCounters",
    "Counters",
    "Exposition",
    "LogCounters",
    "Metric",
    "MetricType",
    "QuotaCounters",
    "Scrape",
    "TransactionCounters",
    "parse",
]
