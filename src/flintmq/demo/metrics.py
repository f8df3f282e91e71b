"""What a demo has counted so far. Pure.

    metrics = DemoMetrics()            one for the whole demo; those who work on it count into it
    metrics.sample(now_s)              once in a while: rates since the last time
    metrics.sums()                     what must be equal, and whether it is

Invariant: each field has one writer, so that threads may count without a lock; whoever reads sees numbers that are a
moment old. Nothing that was counted is taken back, but for what replaces it (a window's revenue, a table's rows).
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from flintmq.demo.shop import CLICKS, ORDERS

_SAMPLES_MAX: Final = 600
_CENT: Final = 0.005


class Sample(NamedTuple):
    """Of a short time, each second of it."""

    orders: float
    clicks: float
    done: float
    lag: int


class Sum(NamedTuple):
    """Two figures that must be equal, and how they came about."""

    name: str
    left: str
    right: str
    is_right: bool


class Window(NamedTuple):
    """What a country bought in ten seconds."""

    revenue: float
    orders: int


@dataclass(slots=True)
class PipelineBatch:
    """What a sink's query has read so far, and how long its last micro-batch took."""

    rows: int
    seconds: float


@dataclass(slots=True)
class StoredRows:
    """What a table holds."""

    rows: int = 0
    files: int = 0
    bytes: int = 0


@dataclass(slots=True)
class DemoMetrics:
    # ---- by whoever produces
    sent: Counter[str] = field(default_factory=Counter)
    """Records by topic."""
    spoiled: int = 0
    amount: float = 0.0
    """Of all good orders."""
    pairs: int = 0
    """Of orders and clicks that belong together."""

    # ---- by whoever watches the topics that the pipeline writes
    bought: int = 0
    dead: int = 0
    dead_by_reason: Counter[str] = field(default_factory=Counter)
    last_dead: str = ""

    # ---- by whoever runs Spark
    stage: str = "starting"
    batches: dict[str, PipelineBatch] = field(default_factory=dict)
    """By sink."""
    windows: dict[tuple[str, str], Window] = field(default_factory=dict)
    """By country and begin."""
    lake_orders: StoredRows = field(default_factory=StoredRows)
    lake_clicks: StoredRows = field(default_factory=StoredRows)

    # ---- by whoever shows it
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=_SAMPLES_MAX))
    _sampled: tuple[float, int, int, int] = (0.0, 0, 0, 0)

    @property
    def total(self) -> int:
        return self.sent[ORDERS] + self.sent[CLICKS]

    @property
    def good(self) -> int:
        return sum(one.orders for one in list(self.windows.values())) + self.lake_clicks.rows

    @property
    def lag(self) -> int:
        """Records that have not come out of the pipeline, neither here nor there."""
        return max(0, self.total - self.good - self.dead)

    @property
    def is_done(self) -> bool:
        """Nothing more is to come, if nothing more is sent."""
        return all(one.is_right for one in self.sums())

    def revenue(self) -> dict[str, float]:
        """By country, the most first."""
        totals: dict[str, float] = {}
        for (country, _), window in list(self.windows.items()):
            totals[country] = totals.get(country, 0.0) + window.revenue
        return dict(sorted(totals.items(), key=lambda one: -one[1]))

    def sample(self, now_s: float) -> None:
        before_s, orders, clicks, done = self._sampled
        now = now_s, self.sent[ORDERS], self.sent[CLICKS], self.good + self.dead
        self._sampled = now
        if (passed_s := now_s - before_s) > 0 and before_s:
            self.samples.append(
                Sample(
                    (now[1] - orders) / passed_s,
                    (now[2] - clicks) / passed_s,
                    (now[3] - done) / passed_s,
                    self.lag,
                )
            )

    def sums(self) -> list[Sum]:
        revenue = sum(self.revenue().values())
        return [
            Sum(
                "produced = good + dead letters",
                f"{self.total:,}",
                f"{self.good:,} + {self.dead:,}",
                self.total == self.good + self.dead,
            ),
            Sum("spoiled = dead letters", f"{self.spoiled:,}", f"{self.dead:,}", self.spoiled == self.dead),
            Sum(
                "orders = rows in the lake",
                f"{self.sent[ORDERS]:,}",
                f"{self.lake_orders.rows:,}",
                self.sent[ORDERS] == self.lake_orders.rows,
            ),
            Sum(
                "good orders' amount = revenue of all windows",
                f"{self.amount:,.2f}",
                f"{revenue:,.2f}",
                abs(self.amount - revenue) < _CENT,
            ),
            Sum(
                "clicks that became orders = rows of the join",
                f"{self.pairs:,}",
                f"{self.bought:,}",
                self.pairs == self.bought,
            ),
        ]
