"""Varints: zigzag ones of records, unsigned ones of the protocol."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flintmq.records.varint import append_unsigned, append_varint, read_unsigned_rest, read_varint


@given(value=st.integers(-(1 << 63), (1 << 63) - 1))
@example(value=0)
@example(value=-1)
@example(value=63)
@example(value=64)
@example(value=-64)
@example(value=-65)
@example(value=(1 << 63) - 1)
@example(value=-(1 << 63))
def test_varints_round_trip_and_fit_in_ten_bytes(value: int) -> None:
    out = bytearray(b"-")
    append_varint(out, value)
    assert len(out) <= 11
    assert read_varint(bytes(out), 1, 64) == (value, len(out))


@pytest.mark.parametrize(("value", "encoded"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (300, "d804")])
def test_varints_have_kafkas_bytes(value: int, encoded: str) -> None:
    out = bytearray()
    append_varint(out, value)
    assert out.hex() == encoded


@pytest.mark.parametrize(("bits", "longest"), [(32, 5), (64, 10)])
def test_varints_are_bounded(bits: int, longest: int) -> None:
    top = (1 << (bits - 1)) - 1
    for value in (top, -top - 1):
        out = bytearray()
        append_varint(out, value)
        assert read_varint(bytes(out), 0, bits) == (value, longest)
    too_wide = b"\xff" * (longest - 1) + b"\x7f"
    for data in (too_wide, b"\xff" * longest + b"\x00", b"\x80" * 20 + b"\x00"):
        with pytest.raises(OverflowError):
            read_varint(data, 0, bits)
    with pytest.raises(IndexError):
        read_varint(b"\xff\xff", 0, bits)


@pytest.mark.parametrize("value", [128, 300, 16_383, 16_384, (1 << 31), (1 << 32) - 1])
def test_long_unsigned_varints_round_trip(value: int) -> None:
    out = bytearray()
    append_unsigned(out, value)
    assert read_unsigned_rest(out, out[0], 1) == (value, len(out))


def test_unsigned_varints_are_bounded() -> None:
    for data in (b"\xff\xff\xff\xff\x1f", b"\x80" * 6):
        with pytest.raises(OverflowError):
            read_unsigned_rest(data, data[0], 1)
    with pytest.raises(IndexError):
        read_unsigned_rest(b"\xff\xff", 0xFF, 1)
