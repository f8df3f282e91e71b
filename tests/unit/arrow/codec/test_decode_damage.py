"""What is damaged or too much is refused, by name, and never rows."""

from __future__ import annotations

import mmap
from typing import Any

import pytest

from flintmq.arrow.codec.decode import ReadCommittedFilter, decode, decode_in_parts
from flintmq.arrow.codec.limits import DecodeLimits
from flintmq.errors import CorruptionError
from flintmq.records.batch import read_header
from flintmq.records.compression import Codec
from flintmq.records.record import build_batch, with_payload

TIME = 1_700_000_000_000
PLACE: dict[str, Any] = {"topic": "orders", "partition": 7}


def batch(*values: bytes, at: int = 0, **settings: Any) -> bytes:
    return build_batch([(b"key", value, TIME, [("h", b"x")]) for value in values], base_offset=at, **settings)


def changed(whole: bytes, **header: int) -> bytes:
    """A batch with another header, and the CRC of what it is now."""
    return with_payload(read_header(whole)._replace(**header), whole[61:], Codec.NONE)


def test_a_failed_crc_names_topic_partition_and_offset() -> None:
    data = bytearray(batch(b"a") + batch(b"b", at=1))
    data[-1] ^= 1
    with pytest.raises(CorruptionError, match="orders-7: the batch at offset 1 fails its CRC"):
        decode(data, **PLACE)


def test_the_crc_is_not_asked_where_it_was_checked_before() -> None:
    data = bytearray(batch(b"abc"))
    data[-1] ^= 1  # within the header's value
    assert decode(data, check_crc=False, **PLACE).batch.num_rows == 1


def test_what_is_not_a_batch_is_refused() -> None:
    with pytest.raises(CorruptionError, match=r"orders-7: .* offset 1 .* is not a record batch of magic 2"):
        decode(batch(b"a") + bytes(61), **PLACE)


def test_less_than_a_header_behind_the_last_batch_is_one_that_is_cut_off() -> None:
    assert decode(batch(b"a") + bytes(60), **PLACE).next_offset == 1


@pytest.mark.parametrize(
    "header",
    [
        {"base_offset": 0},
        {"base_offset": -5},
        {"base_offset": (1 << 63) - 1},
        {"last_offset_delta": -1},
        {"record_count": -1},
    ],
)
def test_batches_out_of_order_are_refused(header: dict[str, int]) -> None:
    data = batch(b"a") + changed(batch(b"b", at=1), **header)
    with pytest.raises(CorruptionError, match="orders-7: the batch at offset"):
        decode(data, **PLACE)


def test_a_damaged_base_offset_is_not_taken_for_the_end_of_the_range() -> None:
    far = changed(batch(b"b", at=1), base_offset=1 << 40)
    with pytest.raises(CorruptionError, match=f"offset 2 .*{(1 << 40) + 1}"):
        decode(batch(b"a") + far + batch(b"c", at=2), end_offset=10, **PLACE)


@pytest.mark.parametrize("count", [0, 1, 3, 1000, (1 << 31) - 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_wrong_count_of_records_is_refused(count: int, codec: Codec) -> None:
    whole = changed(batch(b"a", b"b", at=4), record_count=count)
    packed = with_payload(read_header(whole), whole[61:], codec)
    with pytest.raises(CorruptionError, match="orders-7: the batch at offset 4"):
        decode(packed, **PLACE)


def test_compressed_records_that_are_cut_short_are_refused() -> None:
    whole = bytearray(batch(b"a" * 500, at=4, codec=Codec.ZSTD))[:-1]
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    with pytest.raises(CorruptionError, match="orders-7: the batch at offset 4 cannot be unpacked"):
        decode(whole, check_crc=False, **PLACE)


def test_an_unknown_codec_is_refused() -> None:
    whole = bytearray(batch(b"a", at=4))
    whole[22] |= 6
    with pytest.raises(CorruptionError, match=r"offset 4 cannot be unpacked: .*type 6"):
        decode(whole, check_crc=False, **PLACE)


def test_a_batch_that_unpacks_to_too_much_is_refused() -> None:
    bomb = batch(bytes(2000), at=4, codec=Codec.ZSTD)
    with pytest.raises(CorruptionError, match=r"offset 4 cannot be unpacked: .*1000 bytes"):
        decode(bomb, limits=DecodeLimits(unpacked_bytes_max=1000), **PLACE)


def test_a_batch_of_too_many_headers_is_refused() -> None:
    data = batch(b"a", b"b", b"c") + batch(b"d", b"e", b"f", b"g", at=3)
    with pytest.raises(CorruptionError, match="offset 3 has 4 headers"):
        decode(data, limits=DecodeLimits(batch_headers_max=3), **PLACE)


def test_headers_that_nobody_asks_for_are_not_looked_at() -> None:
    whole = batch(b"a", at=4)
    # Of the header's value, the length.
    damaged = with_payload(read_header(whole), whole[61:-2] + b"\x7f\x7f", Codec.NONE)
    assert decode(damaged, columns=("key", "value"), **PLACE).batch.num_rows == 1
    with pytest.raises(CorruptionError, match="orders-7: the batch at offset 4 holds a record"):
        decode(damaged, columns=("headers",), **PLACE)


def test_a_control_batch_that_is_no_marker_is_refused() -> None:
    whole = build_batch([(b"", b"", TIME, ())], base_offset=4, producer_id=1, is_control=True)
    assert decode(whole, **PLACE).batch.num_rows == 0
    with pytest.raises(CorruptionError, match="orders-7: the batch at offset 4 is no marker"):
        decode(whole, committed=ReadCommittedFilter([]), **PLACE)


def test_more_than_arrow_reaches_is_refused_before_anything_is_read() -> None:
    with (
        mmap.mmap(-1, (1 << 30) + 1) as pages,
        memoryview(pages) as data,
        pytest.raises(ValueError, match="orders-7: 1073741825 bytes are too many"),
    ):
        decode(data, **PLACE)


def test_what_unpacks_to_too_much_at_once_can_be_had_in_parts() -> None:
    data = b"".join(batch(bytes(3000), at=offset, codec=Codec.ZSTD) for offset in range(3))
    with pytest.raises(ValueError, match="less at a time, or in parts"):
        decode(data, limits=DecodeLimits(data_bytes_max=5000), **PLACE)
    parts = list(decode_in_parts(data, part_bytes=5000, **PLACE))
    assert [part.batch.num_rows for part in parts] == [2, 1]
