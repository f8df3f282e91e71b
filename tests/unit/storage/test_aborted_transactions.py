"""The index of aborted transactions, in Kafka's format (F6, KIP-98)."""

from __future__ import annotations

import pytest

from flintmq.errors import CorruptionError
from flintmq.storage.aborted_transactions import AbortedTransaction, decode_aborted, encode_aborted

ENTRIES = [
    AbortedTransaction(1, 5, 9, 7),
    AbortedTransaction(2, 7, 12, 13),
    AbortedTransaction(1, 10, 14, 15),
]


def test_the_index_has_kafkas_format() -> None:
    assert encode_aborted(ENTRIES[:1]).hex() == (
        "0000" "0000000000000001" "0000000000000005" "0000000000000009" "0000000000000007"
    )  # fmt: skip
    assert decode_aborted(encode_aborted(ENTRIES)) == ENTRIES
    assert decode_aborted(b"") == []


@pytest.mark.parametrize(
    "data",
    [
        encode_aborted(ENTRIES)[:-1],
        b"\0\1" + encode_aborted(ENTRIES)[2:],
        encode_aborted(reversed(ENTRIES)),
        encode_aborted([ENTRIES[0], ENTRIES[0]]),
        encode_aborted([AbortedTransaction(1, 9, 5, 10)]),
        encode_aborted([AbortedTransaction(1, -1, 5, 10)]),
        bytes(34),
    ],
    ids=["cut short", "other version", "out of order", "twice", "ends first", "negative", "zeros"],
)
def test_what_cannot_be_an_index_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_aborted(data)
