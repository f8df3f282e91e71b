"""What goes wrong with records on their way: one in a hundred cannot be used. Pure.

Invariant: what is spoiled is refused by the demo's pipeline, for one reason each; what is not spoiled passes. So the
number of spoiled records is the number of dead letters, known before any of them is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

Fields = dict[str, Any]

SHARE: Final = 0.01


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


Spoil = Callable[[Fields], bytes]

OF_CLICKS: Final[Mapping[str, Spoil]] = {
    "cut off": _cut_off,
    "no customer": _without_customer,
    "no time": _without_time,
}
OF_ORDERS: Final[Mapping[str, Spoil]] = {**OF_CLICKS, "negative amount": _negative}


def encode(fields: Fields) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def spoiled(fields: Fields, ways: Mapping[str, Spoil], random: Random) -> tuple[str, bytes]:
    """What is wrong with it now, and its value."""
    name = random.choice(list(ways))
    return name, ways[name](fields)
