"""Payments of some cards, one JSON object a line. A few cards were stolen.

python make_payments.py [--cards 30] [--seed 1] | flintmq produce payments
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TypedDict

BEGIN = datetime(2026, 1, 15, 9, tzinfo=UTC)
COUNTRIES = ("DE", "FR", "IT", "ES", "PL")


class Payment(TypedDict):
    id: int
    card: str
    country: str
    amount: float
    at: str


def payments(cards: int, seed: int) -> list[Payment]:
    """By time. Every fifth card is stolen in one of three ways, which the rules know."""
    random = Random(seed)
    made: list[tuple[datetime, str, str, float]] = []
    for number in range(cards):
        card, home = f"card-{number:04}", random.choice(COUNTRIES)
        at = BEGIN
        for _ in range(10):
            at += timedelta(minutes=random.uniform(20, 90))
            made.append((at, card, home, round(random.uniform(5, 60), 2)))
        if number % 5 == 0:
            made += stolen(number // 5 % 3, at, card, home)
    numbered = enumerate(sorted(made), start=1)
    return [
        {"id": number, "card": card, "country": country, "amount": amount, "at": at.isoformat()}
        for number, (at, card, country, amount) in numbered
    ]


def stolen(way: int, after: datetime, card: str, home: str) -> list[tuple[datetime, str, str, float]]:
    if way == 0:  # many small payments at once
        return [(after + timedelta(seconds=10 * (one + 1)), card, home, 1.0) for one in range(6)]
    if way == 1:  # one that is far too large
        return [(after + timedelta(minutes=40), card, home, 4000.0)]
    elsewhere = next(one for one in COUNTRIES if one != home)
    return [(after + timedelta(minutes=2), card, elsewhere, 20.0)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Payments, one JSON object a line.")
    parser.add_argument("--cards", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    made = payments(options.cards, options.seed)
    sys.stdout.write("".join(json.dumps(one) + "\n" for one in made))


if __name__ == "__main__":
    main()
