"""What a client may send for one partition, by the header alone (issue: validation of every batch header)."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from flintmq.errors import ErrorCode, RequestError
from flintmq.records.batch import (
    BatchHeader,
    assign_offsets,
    check_produced,
    crc_is_right,
    read_header,
    set_append_time,
    set_create_time,
)
from flintmq.records.compression import Codec
from support.wire.batches import produced

NOW_MS = 1_700_000_000_000


def check(batch: bytearray, *, max_bytes: int = 1 << 20, zstd_allowed: bool = True) -> BatchHeader:
    return check_produced(
        memoryview(batch),
        max_bytes=max_bytes,
        zstd_allowed=zstd_allowed,
        earliest_ms=NOW_MS - 1000,
        latest_ms=NOW_MS + 1000,
    )


def refused(batch: bytearray, *, max_bytes: int = 1 << 20, zstd_allowed: bool = True) -> ErrorCode:
    with pytest.raises(RequestError) as error:
        check(batch, max_bytes=max_bytes, zstd_allowed=zstd_allowed)
    return error.value.code


def patched(batch: bytearray, at: int, data: bytes) -> bytearray:
    """With other bytes in the header, and the CRC made right again."""
    batch[at : at + len(data)] = data
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return batch


@pytest.mark.parametrize("codec", list(Codec))
def test_a_sound_batch_of_any_codec_passes(codec: Codec) -> None:
    assert check(produced(b"a", b"b", codec=codec)).record_count == 2


def test_any_damage_behind_the_crc_is_corrupt() -> None:
    for at in range(17, len(produced(b"a"))):
        batch = produced(b"a")
        batch[at] ^= 1
        assert refused(batch) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("what", "batch", "code"),
    [
        ("nothing", bytearray(), ErrorCode.INVALID_RECORD),
        ("less than a header", produced(b"a")[:60], ErrorCode.INVALID_RECORD),
        ("a cut batch", produced(b"a")[:-1], ErrorCode.CORRUPT_MESSAGE),
        ("two batches", produced(b"a") + produced(b"b"), ErrorCode.INVALID_RECORD),
        ("an old magic", patched(produced(b"a"), 16, b"\x01"), ErrorCode.INVALID_RECORD),
        ("a base offset", patched(produced(b"a"), 7, b"\x01"), ErrorCode.INVALID_RECORD),
        ("no records", patched(produced(b"a"), 57, bytes(4)), ErrorCode.INVALID_RECORD),
        ("a count unlike the delta", patched(produced(b"a", b"b"), 26, b"\x05"), ErrorCode.INVALID_RECORD),
        ("a control batch", patched(produced(b"a"), 22, b"\x20"), ErrorCode.INVALID_RECORD),
        ("codec 5", patched(produced(b"a"), 22, b"\x05"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ("codec 7", patched(produced(b"a"), 22, b"\x07"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ("a producer without a sequence", produced(b"a", producer_id=1, epoch=0), ErrorCode.INVALID_RECORD),
        ("a producer without an epoch", produced(b"a", producer_id=1, sequence=0), ErrorCode.INVALID_RECORD),
        ("a nameless transaction", produced(b"a", is_transactional=True), ErrorCode.INVALID_RECORD),
        ("the past", produced(b"a", timestamp=NOW_MS - 1001), ErrorCode.INVALID_TIMESTAMP),
        ("the future", produced(b"a", timestamp=NOW_MS + 1001), ErrorCode.INVALID_TIMESTAMP),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_one_sound_batch_of_a_client_is_refused(
    what: str, batch: bytearray, code: ErrorCode
) -> None:
    assert refused(batch) is code


def test_a_batch_larger_than_the_topic_takes_is_refused() -> None:
    batch = produced(b"a")
    assert check(batch, max_bytes=len(batch))
    assert refused(batch, max_bytes=len(batch) - 1) is ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_is_refused_where_the_request_is_too_old_for_it() -> None:
    assert (
        refused(produced(b"a", codec=Codec.ZSTD), zstd_allowed=False)
        is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    )


@pytest.mark.parametrize("codec", list(Codec))
def test_a_count_that_no_payload_of_this_size_can_hold_is_refused(codec: Codec) -> None:
    batch = produced(b"a", codec=codec)
    count = 400_000_000
    patched(batch, 57, count.to_bytes(4, "big"))
    patched(batch, 23, (count - 1).to_bytes(4, "big"))
    assert refused(batch) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec))
def test_a_count_that_compresses_extremely_well_is_believed(codec: Codec) -> None:
    assert check(produced(*[b""] * 20_000, codec=codec)).record_count == 20_000


def test_a_place_in_the_log_is_given_without_touching_the_crc() -> None:
    batch = produced(b"a")
    assign_offsets(memoryview(batch), 1 << 40, 77)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 77)
    assert crc_is_right(memoryview(batch), header.crc)


def test_append_time_replaces_the_times_and_a_clients_own_bit_is_taken_away() -> None:
    batch = produced(b"a")
    view = memoryview(batch)
    set_append_time(view, read_header(batch).attributes, 123_456)
    header = read_header(batch)
    assert (header.attributes & 0x08, header.max_timestamp) == (0x08, 123_456)
    assert crc_is_right(view, header.crc)
    set_create_time(view, header.attributes)
    header = read_header(batch)
    assert header.attributes & 0x08 == 0
    assert crc_is_right(view, header.crc)
