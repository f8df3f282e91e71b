"""A shop: customers of eight countries look at products, and buy some of them a little later. Pure.

    shop = Shop(seed=1, rate=500)
    for made in shop.until(seconds): …        all that happens up to then, in the order in which it is sent

One record in a hundred is spoiled on its way, and cannot be used. Which clicks became orders is counted as they are
made: the pipeline's join of the two streams must find the same.

Invariant: the same seed gives the same events, however often `until` is called on the way. Every customer is in
`customers()`, and an order is sent after a click of the same customer on the same product, by less than ten minutes.
What is spoiled is rejected by the demo's pipeline, for one reason each, and what is not spoiled passes: the number of
spoiled records is the number of dead letters, known before any of them is sent.
"""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, NamedTuple

ORDERS: Final = "orders"
CLICKS: Final = "clicks"

COUNTRIES: Final = {
    "Germany": 21,
    "France": 17,
    "Italy": 14,
    "Spain": 12,
    "Poland": 11,
    "Sweden": 9,
    "Portugal": 8,
    "Ireland": 8,
}
"""With their share of the customers, of a hundred."""

_CUSTOMERS: Final = 5_000
_FIRST: Final = (
    "Ada",
    "Bruno",
    "Clara",
    "Dario",
    "Elin",
    "Fynn",
    "Greta",
    "Hugo",
    "Ines",
    "Jonas",
    "Karla",
    "Luis",
)
_LAST: Final = (
    "Berg",
    "Costa",
    "Doyle",
    "Fontana",
    "Garcia",
    "Keller",
    "Lind",
    "Moreau",
    "Nowak",
    "Rossi",
    "Silva",
)
_PRODUCTS: Final = {
    "coffee-grinder": 89.00,
    "desk-lamp": 45.50,
    "earphones": 129.00,
    "field-notes": 12.90,
    "garden-chair": 75.00,
    "hiking-boots": 149.95,
    "kettle": 39.90,
    "linen-shirt": 59.00,
    "mechanical-keyboard": 119.00,
    "rain-jacket": 99.95,
    "teapot": 34.50,
    "umbrella": 24.90,
}
_ORDERS_OF_CLICKS: Final = 0.25
_THINKS_S: Final = 8.0
"""At most, between the click and the order."""
_LATE: Final = 0.03
_LATE_S: Final = 20.0
"""At most: less than the pipeline's watermark, so that nothing is too late."""


class Customer(NamedTuple):
    customer: int
    name: str
    country: str


@dataclass(frozen=True, slots=True)
class ShopRecord:
    """A record to be sent."""

    topic: str
    key: bytes
    value: bytes
    fault: str = ""
    """What is wrong with it; empty if nothing is."""
    amount: float = 0.0
    """Of a good order."""
    pairs: int = 0
    """Clicks that became orders, of which this is the later one made."""


def customers() -> list[Customer]:
    """All there are: the same ones in every demo."""
    random = Random("customers")
    names, shares = list(COUNTRIES), list(COUNTRIES.values())
    return [
        Customer(
            number,
            f"{random.choice(_FIRST)} {random.choice(_LAST)}",
            random.choices(names, shares)[0],
        )
        for number in range(1, _CUSTOMERS + 1)
    ]


class Shop:
    def __init__(self, *, seed: int, rate: float, begun: datetime) -> None:
        """`rate` is of clicks and orders together, each second; `begun` is the time of the first."""
        self._random = Random(seed)
        self._begun = begun.astimezone(UTC).replace(microsecond=0)
        self._customers = customers()
        self._products = list(_PRODUCTS)
        # Cumulative, so that some products are looked at far more often than others.
        self._favours = [1 / (rank + 1) for rank in range(len(self._products))]
        self._gap_s = (1 + _ORDERS_OF_CLICKS) / rate
        self._next_click_s = 0.0
        self._orders_due: list[tuple[float, int, int, str]] = []
        self._orders = 0
        self._clicks = 0
        self._pairs = ClickPairs()

    def until(self, seconds: float) -> Iterator[ShopRecord]:
        """All that happens before so many seconds from the beginning, and was not given before."""
        while True:
            order_s = self._orders_due[0][0] if self._orders_due else seconds
            if min(self._next_click_s, order_s) >= seconds:
                return
            yield self._click() if self._next_click_s <= order_s else self._order()

    def _click(self) -> ShopRecord:
        random, at_s = self._random, self._next_click_s
        self._next_click_s += random.expovariate(1 / self._gap_s)
        self._clicks += 1
        who = random.choice(self._customers).customer
        product = random.choices(self._products, self._favours)[0]
        if random.random() < _ORDERS_OF_CLICKS:
            self._orders += 1
            due_s = at_s + random.uniform(0.2, _THINKS_S)
            heapq.heappush(self._orders_due, (due_s, self._orders, who, product))
        at_s = self._told_s(at_s)
        fields = {"id": self._clicks, "customer": who, "product": product, "at": self._text(at_s)}
        made = self._made(CLICKS, who, fields)
        return made if made.fault else replace(made, pairs=self._pairs.add_click((who, product), at_s))

    def _order(self) -> ShopRecord:
        at_s, number, who, product = heapq.heappop(self._orders_due)
        quantity = self._random.choices((1, 2, 3), (8, 2, 1))[0]
        amount = round(quantity * _PRODUCTS[product], 2)
        at_s = self._told_s(at_s)
        fields = {
            "id": number,
            "customer": who,
            "product": product,
            "quantity": quantity,
            "amount": amount,
            "at": self._text(at_s),
        }
        made = self._made(ORDERS, who, fields)
        if made.fault:
            return made
        return replace(made, amount=amount, pairs=self._pairs.add_order((who, product), at_s))

    def _made(self, topic: str, who: int, fields: Fields) -> ShopRecord:
        key = str(who).encode()
        if self._random.random() < SPOILED_SHARE:
            ways = ORDER_FAULTS if topic == ORDERS else CLICK_FAULTS
            fault, value = spoil(fields, ways, self._random)
            return ShopRecord(topic, key, value, fault)
        return ShopRecord(topic, key, encode(fields))

    def _told_s(self, at_s: float) -> float:
        """When it says that it happened, in whole milliseconds; some devices tell it late."""
        late_s = self._random.uniform(0, _LATE_S) if self._random.random() < _LATE else 0.0
        return round(at_s - late_s, 3)

    def _text(self, at_s: float) -> str:
        at = self._begun + timedelta(milliseconds=round(at_s * 1000))
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


Fields = dict[str, Any]

SPOILED_SHARE: Final = 0.01


def _cut_off(fields: Fields) -> bytes:
    """As by a sender that died: no JSON any more."""
    text = encode(fields)
    return text[: len(text) // 2]


def _without_customer(fields: Fields) -> bytes:
    return encode({name: value for name, value in fields.items() if name != "customer"})


def _without_time(fields: Fields) -> bytes:
    return encode({name: value for name, value in fields.items() if name != "at"})


def _negative(fields: Fields) -> bytes:
    return encode({**fields, "amount": -fields["amount"]})


Spoiler = Callable[[Fields], bytes]

CLICK_FAULTS: Final[Mapping[str, Spoiler]] = {
    "cut off": _cut_off,
    "no customer": _without_customer,
    "no time": _without_time,
}
ORDER_FAULTS: Final[Mapping[str, Spoiler]] = {**CLICK_FAULTS, "negative amount": _negative}


def encode(fields: Fields) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def spoil(fields: Fields, ways: Mapping[str, Spoiler], random: Random) -> tuple[str, bytes]:
    """What is wrong with it now, and its value."""
    name = random.choice(list(ways))
    return name, ways[name](fields)


_BEFORE_S: Final = 600.0
_KEPT_S: Final = 700.0
"""Longer than two that make a pair can be apart, late ones too."""

Key = tuple[int, str]


class ClickPairs:
    def __init__(self) -> None:
        self._clicks: dict[Key, list[float]] = defaultdict(list)
        self._orders: dict[Key, list[float]] = defaultdict(list)

    def add_click(self, key: Key, at_s: float) -> int:
        """How many pairs it makes with the orders so far."""
        self._clicks[key] = _kept(self._clicks[key], at_s)
        return sum(_is_pair(at_s, order_s) for order_s in self._orders[key])

    def add_order(self, key: Key, at_s: float) -> int:
        """How many pairs it makes with the clicks so far."""
        self._orders[key] = _kept(self._orders[key], at_s)
        return sum(_is_pair(click_s, at_s) for click_s in self._clicks[key])


def _kept(times: list[float], at_s: float) -> list[float]:
    return [*(one for one in times if at_s - one < _KEPT_S), at_s]


def _is_pair(click_s: float, order_s: float) -> bool:
    return order_s - _BEFORE_S <= click_s <= order_s
