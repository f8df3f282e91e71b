"""A transaction from its beginning to a reader of committed records, through librdkafka."""

from __future__ import annotations

import itertools
import time
from typing import Final

from bench.figures import Figure, cpu, latencies
from bench.rdkafka import Transactions
from bench.workloads.target import Target, Workload

_RECORDS: Final = 10
_names = itertools.count(1)


def _transactions(target: Target) -> list[Figure]:
    count = target.scaled(1000, least=5)
    warm = target.scaled(200, least=2)
    took = []
    with target.topic(1) as topic:
        name = f"bench-{next(_names)}"
        with Transactions(target.broker.bootstrap, topic.name, name, records=_RECORDS) as transactions:
            for _ in range(warm):
                transactions.run()
            with target.measured() as meter:
                for _ in range(count):
                    began = time.perf_counter()
                    transactions.run()
                    took.append(time.perf_counter() - began)
    return [
        *latencies(took, name="begun, committed and read", goal_ratios=(0.8, None)),
        cpu("CPU per transaction", meter.cost.broker_cpu_s, per=count / 1e3, unit="ms"),
    ]


WORKLOADS: Final = (
    Workload(
        "transactions",
        "transactions of ten records, one after the other, each read by a read_committed consumer before the next",
        _transactions,
        needs_librdkafka=True,
    ),
)
