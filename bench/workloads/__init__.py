"""What is measured: one list, in the order in which it runs.

A workload takes a `Target` and returns figures; it leaves nothing behind on the broker. Its size follows the
target's scale, where 1 is a run to be quoted. A workload must not know which broker it runs against.
"""

from __future__ import annotations

from bench.workloads import (
    cleaning,
    coordination,
    disturbed,
    fan_out,
    latency,
    librdkafka,
    lifecycle,
    requests,
    streams,
    topics,
    transactions,
)
from bench.workloads.target import Target, Workload

WORKLOADS: tuple[Workload, ...] = (
    *streams.WORKLOADS,
    *librdkafka.WORKLOADS,
    *requests.WORKLOADS,
    *latency.WORKLOADS,
    *disturbed.WORKLOADS,
    *fan_out.WORKLOADS,
    *coordination.WORKLOADS,
    *transactions.WORKLOADS,
    *lifecycle.WORKLOADS,
    *cleaning.WORKLOADS,
    # Last on the shared broker: a thousand deleted topics are still being cleared away when it ends.
    *topics.WORKLOADS,
)

__all__ = ["WORKLOADS", "Target", "Workload"]
