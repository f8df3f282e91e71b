"""examples/fraud-rules: the stolen cards are found, each by its rule, and no other card."""

from __future__ import annotations

from collections.abc import Callable

from support.pipeline.examples import Example

RULES = ("too often", "too much", "too far")


def test_stolen_cards_are_found_and_no_others(example: Callable[[str], Example]) -> None:
    fraud = example("fraud-rules")
    fraud.follow()
    stolen = {f"card-{number:04}": RULES[number // 5 % 3] for number in range(0, 30, 5)}
    payments = {one["id"]: one for one in fraud.module("make_payments").payments(30, 1)}
    alerts = fraud.records("alerts")
    assert {payments[one["id"]]["card"]: one["rule"] for one in alerts} == stolen
    assert all(payments[one["id"]]["amount"] == one["amount"] for one in alerts)
    # Of many payments in a minute, each that is one too many.
    assert len(alerts) > len(stolen)
