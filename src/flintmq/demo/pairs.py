"""Which clicks became orders, counted as they are made: what the pipeline's join of the two streams must find. Pure.

Invariant: a pair is an order and a click of the same customer on the same product, at most ten minutes before it. It
counts once, with the one of the two that was made later.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

_BEFORE_S: Final = 600.0
_KEPT_S: Final = 700.0
"""Longer than two that make a pair can be apart, late ones too."""

Key = tuple[int, str]


class Pairs:
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
