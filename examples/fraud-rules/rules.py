"""What makes a payment suspicious, given what is known of its card.

`Card` has the rules and knows nothing of Spark; `Rules` lets Spark keep one for each card.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

MINUTE = timedelta(minutes=1)
MINUTE_MAX = 4
"""Payments of one card in a minute."""
TRAVEL = timedelta(minutes=10)
"""Nobody is in another country so soon."""
USUAL_COUNT = 5
"""So many payments make a habit."""
TIMES_USUAL = 10


@dataclass
class Card:
    recent: list[datetime] = field(default_factory=list)
    """Payments of the last minute."""
    country: str = ""
    last: datetime | None = None
    count: int = 0
    total: float = 0.0

    def judge(self, country: str, amount: float, at: datetime) -> list[str]:
        """The rules that a payment breaks; it is remembered."""
        broken = []
        self.recent = [*(one for one in self.recent if at - one < MINUTE), at]
        if len(self.recent) > MINUTE_MAX:
            broken.append("too often")
        if self.count >= USUAL_COUNT and amount > TIMES_USUAL * self.total / self.count:
            broken.append("too much")
        if self.last is not None and country != self.country and at - self.last < TRAVEL:
            broken.append("too far")
        self.country, self.last = country, at
        self.count, self.total = self.count + 1, self.total + amount
        return broken


class Rules(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._card = handle.getValueState(
            "card", "recent array<timestamp>, country string, last timestamp, count long, total double"
        )

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        known = self._card.get() if self._card.exists() else None
        card = Card() if known is None else Card(list(known[0]), *known[1:])
        # Of one card in one batch, rows come in any order.
        for row in sorted(rows, key=lambda one: (one.at, one.id)):
            for rule in card.judge(row.country, row.amount, row.at):
                yield Row(card=key[0], id=row.id, rule=rule, amount=row.amount)
        self._card.update((card.recent, card.country, card.last, card.count, card.total))

    def close(self) -> None:
        """Nothing is open."""
