"""The shop that the demo watches: the same every time, spoiled as promised, and of customers that are known."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from flintmq.demo.shop import (
    CLICK_FAULTS,
    CLICKS,
    COUNTRIES,
    ORDER_FAULTS,
    ORDERS,
    SPOILED_SHARE,
    Shop,
    ShopRecord,
    customers,
)

BEGUN = datetime(2026, 1, 15, 12, tzinfo=UTC)


def made_in(seconds: float, *, seed: int = 1, rate: float = 500) -> list[ShopRecord]:
    return list(Shop(seed=seed, rate=rate, begun=BEGUN).until(seconds))


def test_a_seed_gives_the_same_events_in_one_go_or_in_many() -> None:
    shop = Shop(seed=3, rate=200, begun=BEGUN)
    in_many = [one for tenth in range(1, 101) for one in shop.until(tenth / 10)]
    assert in_many == made_in(10, seed=3, rate=200)
    assert in_many != made_in(10, seed=4, rate=200)


def test_the_rate_is_that_of_clicks_and_orders_together() -> None:
    # The first seconds have fewer orders: customers think first.
    steady = made_in(60)[len(made_in(20)) :]
    assert len(steady) / 40 == pytest.approx(500, rel=0.05)


def test_one_in_a_hundred_is_spoiled_in_every_way_there_is() -> None:
    made = made_in(60)
    faults = Counter((one.topic, one.fault) for one in made if one.fault)
    assert sum(faults.values()) / len(made) == pytest.approx(SPOILED_SHARE, rel=0.3)
    assert {fault for topic, fault in faults if topic == ORDERS} == set(ORDER_FAULTS)
    assert {fault for topic, fault in faults if topic == CLICKS} == set(CLICK_FAULTS)


def test_what_is_not_spoiled_has_all_that_the_pipeline_expects() -> None:
    known = {one.customer for one in customers()}
    for one in made_in(20):
        if one.fault:
            continue
        row = json.loads(one.value)
        assert row["customer"] in known
        assert one.topic == CLICKS or row["amount"] == one.amount > 0
        at = datetime.fromisoformat(row["at"])
        assert BEGUN - timedelta(seconds=30) < at < BEGUN + timedelta(seconds=20)


def test_orders_follow_a_click_of_the_same_customer_on_the_same_product() -> None:
    clicked = set()
    orders = 0
    for one in made_in(20):
        if one.fault:
            continue
        row = json.loads(one.value)
        if one.topic == CLICKS:
            clicked.add((row["customer"], row["product"]))
        else:
            orders += 1
    spoiled_clicks = sum(one.topic == CLICKS and bool(one.fault) for one in made_in(20))
    without = [
        one
        for one in made_in(20)
        if one.topic == ORDERS
        and not one.fault
        and ((row := json.loads(one.value))["customer"], row["product"]) not in clicked
    ]
    assert orders > 1000
    # Only an order whose one click was spoiled has none.
    assert len(without) <= spoiled_clicks


def test_customers_are_of_all_countries() -> None:
    assert {one.country for one in customers()} == set(COUNTRIES)
    assert customers() == customers()


def test_pairs_are_those_that_a_join_of_all_clicks_and_orders_finds() -> None:
    clicks: list[tuple[int, str, datetime]] = []
    orders: list[tuple[int, str, datetime]] = []
    pairs = 0
    for one in made_in(60, rate=300):
        pairs += one.pairs
        if not one.fault:
            row = json.loads(one.value)
            found = (row["customer"], row["product"], datetime.fromisoformat(row["at"]))
            (clicks if one.topic == CLICKS else orders).append(found)
    by_key: dict[tuple[int, str], list[datetime]] = {}
    for customer, product, at in clicks:
        by_key.setdefault((customer, product), []).append(at)
    joined = sum(
        at - timedelta(minutes=10) <= click <= at
        for customer, product, at in orders
        for click in by_key.get((customer, product), ())
    )
    assert pairs == joined > 1000
