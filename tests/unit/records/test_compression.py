"""Compression (F10): round trips, foreign encoders, damage and bombs."""

from __future__ import annotations

import gzip
import os
import struct
import subprocess
import sys
import tracemalloc

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flintmq.errors import ErrorCode, RequestError
from flintmq.records.compression import CODEC_BY_NAME, LEVELS, Codec, compress, decompress

MIB = 1 << 20
COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"the quick brown fox jumps over the lazy dog " * 40
XERIAL_MAGIC = b"\x82SNAPPY\x00"

payloads = st.builds(
    lambda unit, times, tail: unit * times + tail,
    st.binary(max_size=64),
    st.integers(0, 4000),
    st.binary(max_size=200),
)


def code_of(codec: Codec, data: bytes, *, limit: int = MIB) -> ErrorCode:
    with pytest.raises(RequestError) as caught:
        decompress(codec, data, limit=limit)
    return caught.value.code


REFUSED_OR_READ = {ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE}


def outcome(codec: Codec, data: bytes | bytearray, *, limit: int) -> ErrorCode:
    try:
        size = len(decompress(codec, data, limit=limit))
    except RequestError as error:
        return error.code
    assert size <= limit
    return ErrorCode.NONE


def zstd_runs(count: int, *, window_log: int) -> bytes:
    """A frame of `count` blocks, each four bytes that stand for 128 KiB."""
    block = (128 * 1024 << 3) | 2
    blocks = (block.to_bytes(3, "little") + b"x") * (count - 1) + (block | 1).to_bytes(3, "little") + b"x"
    return b"\x28\xb5\x2f\xfd\x00" + bytes([(window_log - 10) << 3]) + blocks


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=40, deadline=None)
@given(data=payloads)
@example(data=b"")
@example(data=bytes(64 * 1024))
@example(data=bytes(64 * 1024 + 1))
@example(data=TEXT * 100)
def test_what_is_compressed_comes_back_at_a_limit_of_its_own_size(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), limit=len(data)) == data


@pytest.mark.parametrize("codec", Codec)
def test_incompressible_data_over_many_blocks_comes_back(codec: Codec) -> None:
    data = os.urandom(200_000) + TEXT + os.urandom(70_000)
    assert decompress(codec, compress(codec, data), limit=MIB) == data


@pytest.mark.parametrize("codec", Codec)
def test_every_kind_of_buffer_is_taken(codec: Codec) -> None:
    packed = compress(codec, bytearray(TEXT))
    assert compress(codec, memoryview(TEXT)) == packed
    assert decompress(codec, bytearray(packed), limit=MIB) == TEXT
    assert decompress(codec, memoryview(b"--" + packed)[2:], limit=MIB) == TEXT


@pytest.mark.parametrize("codec", Codec)
def test_one_byte_over_the_limit_is_too_large(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert code_of(codec, packed, limit=len(TEXT) - 1) is ErrorCode.MESSAGE_TOO_LARGE
    assert code_of(codec, packed, limit=0) is ErrorCode.MESSAGE_TOO_LARGE


def test_names_are_those_of_compression_type() -> None:
    assert [codec.label for codec in Codec] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert CODEC_BY_NAME["uncompressed"] is CODEC_BY_NAME["none"] is Codec.NONE
    assert CODEC_BY_NAME["zstd"] is Codec.ZSTD


@pytest.mark.parametrize("codec", LEVELS)
def test_levels_are_kafkas(codec: Codec) -> None:
    """KIP-390."""
    lowest, highest, default = LEVELS[codec]
    for level in (lowest, highest, default):
        assert decompress(codec, compress(codec, TEXT, level), limit=MIB) == TEXT
    assert compress(codec, TEXT, default) == compress(codec, TEXT)
    for level in (lowest - 1, highest + 1):
        with pytest.raises(ValueError, match="levels"):
            compress(codec, TEXT, level)


def test_a_higher_level_packs_more_tightly() -> None:
    words = b" ".join(str(n * n).encode() for n in range(20_000))
    for codec, (lowest, highest, default) in LEVELS.items():
        assert len(compress(codec, words, highest)) < len(compress(codec, words, lowest))
        assert len(compress(codec, words, highest - 1)) != len(compress(codec, words, default))


@pytest.mark.parametrize("data", [b"x", TEXT, TEXT * 200])
def test_other_readers_and_writers_agree(data: bytes) -> None:
    assert gzip.decompress(compress(Codec.GZIP, data)) == data
    assert aiokafka_codec.snappy_decode(compress(Codec.SNAPPY, data)) == data
    assert aiokafka_codec.lz4_decode(compress(Codec.LZ4, data)) == data
    assert aiokafka_codec.zstd_decode(compress(Codec.ZSTD, data)) == data
    assert decompress(Codec.GZIP, gzip.compress(data), limit=MIB) == data
    assert decompress(Codec.SNAPPY, aiokafka_codec.snappy_encode(data), limit=MIB) == data
    assert decompress(Codec.LZ4, aiokafka_codec.lz4_encode(data), limit=MIB) == data
    assert decompress(Codec.ZSTD, aiokafka_codec.zstd_encode(data), limit=MIB) == data


def test_gzip_of_several_members_is_read_whole() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")
    assert decompress(Codec.GZIP, packed, limit=7) == b"one two"


def test_zstd_of_several_frames_is_read_whole() -> None:
    skippable = struct.pack("<II", 0x184D2A57, 3) + b"abc"
    packed = compress(Codec.ZSTD, b"one ") + skippable + compress(Codec.ZSTD, b"two")
    assert decompress(Codec.ZSTD, packed, limit=7) == b"one two"


def test_zstd_streams_without_a_content_size_are_read() -> None:
    stream = cramjam.zstd.Compressor(level=19)
    stream.compress(TEXT * 300)
    assert decompress(Codec.ZSTD, bytes(stream.finish()), limit=MIB) == TEXT * 300
    assert decompress(Codec.ZSTD, zstd_runs(3, window_log=27), limit=MIB) == b"x" * (3 * 128 * 1024)


def test_zstd_with_a_checksum_is_read_and_the_checksum_kept() -> None:
    # one segment of three stored bytes, then the low half of their XXH64
    packed = bytes.fromhex("28b52ffd 24 03 190000") + b"abc" + bytes.fromhex("990977ad")
    assert decompress(Codec.ZSTD, packed, limit=3) == b"abc"
    assert decompress(Codec.ZSTD, packed * 2, limit=6) == b"abcabc"
    assert code_of(Codec.ZSTD, packed[:-1] + b"\x00") is ErrorCode.INVALID_RECORD
    assert code_of(Codec.ZSTD, packed[:-4]) is ErrorCode.INVALID_RECORD


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    data = os.urandom(80_000)
    packed = compress(Codec.SNAPPY, data)
    assert packed[:16] == XERIAL_MAGIC + b"\0\0\0\x01\0\0\0\x01"
    position, sizes = 16, []
    while position < len(packed):
        size = int.from_bytes(packed[position : position + 4], "big")
        sizes.append(cramjam.snappy.decompress_raw_len(packed[position + 4 : position + 4 + size]))
        position += 4 + size
    assert sizes == [32768, 32768, 80_000 - 65536]


def test_snappy_is_read_raw_and_from_joined_xerial_streams() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, raw, limit=MIB) == TEXT
    joined = compress(Codec.SNAPPY, b"one ") + compress(Codec.SNAPPY, b"two")
    assert decompress(Codec.SNAPPY, joined, limit=MIB) == b"one two"


def test_xerial_versions_in_the_wrong_byte_order_are_read() -> None:
    packed = bytearray(compress(Codec.SNAPPY, TEXT))
    packed[8:16] = struct.pack("<II", 1, 1)
    assert decompress(Codec.SNAPPY, packed, limit=MIB) == TEXT


@pytest.mark.parametrize("level", [None, 1, 17])
def test_lz4_frames_are_such_as_java_reads(level: int | None) -> None:
    """KIP-57: version 1, independent blocks of at most 64 KiB, and no linked ones at any level."""
    packed = compress(Codec.LZ4, bytes(65536) + os.urandom(50), level)
    assert packed[:4].hex() == "04224d18"
    assert packed[4] & 0b1110_0011 == 0b0110_0000
    assert packed[5] == 0x40
    assert packed[-4:] == bytes(4)


def test_lz4_with_checksums_and_content_size_is_read() -> None:
    stream = cramjam.lz4.Compressor(level=4, content_checksum=True, block_linked=False)
    stream.compress(TEXT * 50)
    packed = bytes(stream.finish())
    assert packed[4] & 0x14 == 0x14
    assert decompress(Codec.LZ4, packed, limit=MIB) == TEXT * 50
    # version 1, independent, with content size; the checksum byte is that of exactly this header
    sized = bytes.fromhex("04224d18 6840 0300000000000000 87 03000080") + b"abc" + bytes(4)
    assert decompress(Codec.LZ4, sized, limit=MIB) == b"abc"


def test_lz4_with_linked_blocks_is_refused_as_by_java() -> None:
    assert code_of(Codec.LZ4, bytes(cramjam.lz4.compress(TEXT))) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", COMPRESSING)
def test_truncation_at_every_byte_is_refused(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    for size in range(len(packed)):
        if codec is Codec.SNAPPY and size == 16:
            continue  # a xerial stream has no end mark: this is one of no blocks
        assert code_of(codec, packed[:size]) is ErrorCode.INVALID_RECORD, size


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("garbage", [b"\0", b"x", bytes(3), bytes(4), bytes(64), b"garbage" * 9])
def test_trailing_garbage_is_refused(codec: Codec, garbage: bytes) -> None:
    assert code_of(codec, compress(codec, TEXT) + garbage) is ErrorCode.INVALID_RECORD


def test_trailing_garbage_behind_a_raw_snappy_block_is_refused() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert code_of(Codec.SNAPPY, raw + b"garbage") is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", COMPRESSING)
@settings(max_examples=150, deadline=None)
@given(junk=st.binary(max_size=200), keep=st.integers(0, 24))
def test_junk_is_refused_or_read_within_the_limit(codec: Codec, junk: bytes, keep: int) -> None:
    assert outcome(codec, junk, limit=4096) in REFUSED_OR_READ
    assert outcome(codec, compress(codec, TEXT)[:keep] + junk, limit=4096) in REFUSED_OR_READ


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_flipped_bit_anywhere_is_refused_or_read_within_the_limit(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    outcomes = set()
    for bit in range(len(packed) * 8):
        damaged = bytearray(packed)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        outcomes.add(outcome(codec, damaged, limit=4096))
    assert ErrorCode.INVALID_RECORD in outcomes
    assert outcomes <= REFUSED_OR_READ


CLAIMS = {
    "snappy that claims 4 GiB": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(40)),
    "xerial block that claims 4 GiB": (
        Codec.SNAPPY,
        XERIAL_MAGIC + bytes(8) + b"\0\0\0\x08" + b"\xff\xff\xff\xff\x0f" + bytes(3),
    ),
    "xerial block longer than the data": (Codec.SNAPPY, XERIAL_MAGIC + bytes(8) + b"\x7f\xff\xff\xff"),
    "lz4 block longer than the data": (Codec.LZ4, bytes.fromhex("04224d18604082 ffffff7f")),
    "lz4 stored block longer than the data": (Codec.LZ4, bytes.fromhex("04224d18604082 ffffffff")),
    "lz4 content size of 1 TiB": (Codec.LZ4, bytes.fromhex("04224d18 6840 0000000000010000 00 00000000")),
    "zstd content size of 1 TiB": (
        Codec.ZSTD,
        b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + b"\x01\0\0",
    ),
    "zstd window of 3 TiB": (Codec.ZSTD, b"\x28\xb5\x2f\xfd\x00\xff\x01\0\0"),
}


@pytest.mark.parametrize(("codec", "data"), CLAIMS.values(), ids=list(CLAIMS))
def test_a_claimed_length_allocates_nothing(codec: Codec, data: bytes) -> None:
    tracemalloc.start()
    try:
        assert code_of(codec, data, limit=1 << 30) is ErrorCode.INVALID_RECORD
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.SNAPPY, XERIAL_MAGIC + bytes(8) + b"\0\0\0\x01\0" * 20_000),
        (Codec.GZIP, gzip.compress(b"") * 5_000),
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\x20\x00" + bytes(3) * 30_000 + b"\x01\0\0"),
    ],
    # Not by the data, in which there may be the time: all who collect the tests must give them the same names.
    ids=["snappy", "gzip", "zstd"],
)
def test_countless_empty_blocks_cost_no_more_than_their_bytes(codec: Codec, data: bytes) -> None:
    tracemalloc.start()
    try:
        assert decompress(codec, data, limit=0) == b""
        assert tracemalloc.get_traced_memory()[1] < len(data) + 64 * 1024
    finally:
        tracemalloc.stop()


def test_runs_that_surely_pass_the_limit_are_refused_without_a_buffer() -> None:
    bomb = zstd_runs(2000, window_log=17)  # 8 KB for 250 MiB
    tracemalloc.start()
    try:
        assert code_of(Codec.ZSTD, bomb, limit=128 * MIB) is ErrorCode.MESSAGE_TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


BOMB_LIMIT = 4 * MIB
BOMB_SIZE = 64 * MIB
IN_A_PROCESS = """
import sys
from flintmq.errors import RequestError
from flintmq.records.compression import Codec, compress, decompress

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

codec, limit = Codec(int(sys.argv[1])), int(sys.argv[2])
bomb = sys.stdin.buffer.read()
decompress(codec, compress(codec, b"warm"), limit=limit)
before = peak()
try:
    decompress(codec, bomb, limit=limit)
except RequestError as error:
    print(error.code.name, peak() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's peak of resident memory")
@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_takes_no_more_memory_than_the_limit_allows(codec: Codec) -> None:
    if codec is Codec.ZSTD:
        # Repeated text makes compressed blocks, not runs, so that only decoding can tell; no content size.
        stream = cramjam.zstd.Compressor(level=3)
        stream.compress(TEXT * (BOMB_SIZE // len(TEXT)))
        bomb = bytes(stream.finish())
    else:
        bomb = compress(codec, bytes(BOMB_SIZE), LEVELS[codec][1] if codec in LEVELS else None)
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS, str(int(codec)), str(BOMB_LIMIT)],
        input=bomb,
        capture_output=True,
        check=True,
    )
    name, growth = done.stdout.decode().split()
    assert name == "MESSAGE_TOO_LARGE"
    # The output, and for zstd its window beside it.
    assert int(growth) < (2.5 if codec is Codec.ZSTD else 1.5) * BOMB_LIMIT, (
        f"{len(bomb)} bytes cost {growth}"
    )
