"""The five codecs of a record batch's payload.

Invariant: what comes out of `decompress` is complete and no longer than `limit`, and nothing in
proportion to a claimed length is allocated before that claim has been held against the limit and
against what the input could possibly hold. LZ4 and Zstandard say how much they may expand in their
block headers; these are walked first, so the native code gets one buffer of the right size, and
truncation and trailing bytes are found here.

A payload over the limit is MESSAGE_TOO_LARGE (a producer then splits its batch); one that makes no
sense is INVALID_RECORD: its CRC was right, so sending it again would not help. This module must not know
batches or records.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NoReturn

import cramjam

from flintmq.errors import ErrorCode, RequestError

Buffer = bytes | bytearray | memoryview


class Codec(IntEnum):
    """Compression types by the number they have in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The name that producers and consoles use: `none`, `gzip`, …"""
        return self.name.lower()


CODEC_BY_NAME: Final = {codec.label: codec for codec in Codec} | {"uncompressed": Codec.NONE}
"""Values of `compression.type`: a producer says `none`, a topic says `uncompressed`."""

LEVELS: Final = {Codec.GZIP: (1, 9, -1), Codec.LZ4: (1, 17, 9), Codec.ZSTD: (-131072, 22, 3)}
"""Lowest, highest and default level (KIP-390). The default is always valid, within the range or not."""

_GZIP_WINDOW: Final = 31  # the largest window, with gzip's header and trailer
_GZIP_STEP: Final = 64 * 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK: Final = 32 * 1024
_SNAPPY_RATIO_MAX: Final = 22  # three bytes copy at most 64

_LZ4_MAGIC: Final = 0x184D2204
_LZ4_STORED: Final = 0x80000000
_LZ4_RATIO_MAX: Final = 255

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_BLOCK_MAX: Final = 128 * 1024
_ZSTD_RAW: Final = 0
_ZSTD_RLE: Final = 1
_ZSTD_RESERVED: Final = 3

_UINT32_LE: Final = struct.Struct("<I")
_UINT32_BE: Final = struct.Struct(">I")

# How cramjam says that the output did not fit, whichever the codec.
_OUTPUT_FULL: Final = "failed to write whole buffer"


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`data` as Kafka's own producer would compress it. Without a level, the codec's default."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.SNAPPY:
        return _snappy_compressed(memoryview(data))
    lowest, highest, default = LEVELS[codec]
    if level is None:
        level = default
    elif level != default and not lowest <= level <= highest:
        raise ValueError(f"{codec.label} has levels {lowest} to {highest}, not {level}")
    if codec is Codec.GZIP:
        return _gzip_compressed(data, level)
    if codec is Codec.LZ4:
        return _lz4_compressed(data, level)
    return bytes(cramjam.zstd.compress(data, level=level))


def decompress(codec: Codec, data: Buffer, *, limit: int) -> bytes | memoryview:
    """All of the payload, at most `limit` bytes of it, or a RequestError.

    Zstandard keeps a window of its own beside the output: up to as much again.
    """
    view = memoryview(data)
    if codec is Codec.NONE:
        if len(view) > limit:
            _too_large(limit)
        return view
    if codec is Codec.GZIP:
        return _gzip_decompressed(view, limit)
    if codec is Codec.SNAPPY:
        return _snappy_decompressed(view, limit)
    try:
        bound = _lz4_bound(view) if codec is Codec.LZ4 else _zstd_bound(view, limit)
    except (struct.error, IndexError):
        _invalid(codec, "cut short")
    output = bytearray(min(bound, limit))
    decompress_into = cramjam.lz4.decompress_into if codec is Codec.LZ4 else cramjam.zstd.decompress_into
    try:
        size: int = decompress_into(view, output)
    except cramjam.DecompressionError as error:
        if bound > limit and _OUTPUT_FULL in str(error):
            _too_large(limit)
        _invalid(codec, str(error))
    del output[size:]
    return memoryview(output)


def _too_large(limit: int) -> NoReturn:
    raise RequestError(
        ErrorCode.MESSAGE_TOO_LARGE, f"The records decompress to more than the {limit} bytes allowed."
    )


def _invalid(codec: Codec, why: str) -> NoReturn:
    raise RequestError(ErrorCode.INVALID_RECORD, f"The records are not valid {codec.label}: {why}.")


def _gzip_compressed(data: Buffer, level: int) -> bytes:
    stream = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)
    return stream.compress(data) + stream.flush()


def _gzip_decompressed(data: memoryview, limit: int) -> memoryview:
    output = bytearray()
    position = 0
    while True:  # one turn per member
        member = zlib.decompressobj(_GZIP_WINDOW)
        pending = b""
        while not member.eof:
            chunk: bytes | memoryview = pending
            if not pending:
                chunk = data[position : position + _GZIP_STEP]
                position += len(chunk)
            try:
                # One byte over the limit is asked for, so that reaching it and passing it differ.
                piece = member.decompress(chunk, min(_GZIP_STEP, limit - len(output) + 1))
            except zlib.error as error:
                _invalid(Codec.GZIP, str(error))
            if not piece and not chunk:
                _invalid(Codec.GZIP, "cut short")
            output += piece
            if len(output) > limit:
                _too_large(limit)
            pending = member.unconsumed_tail
        position -= len(member.unused_data)
        if position == len(data):
            return memoryview(output)


def _snappy_compressed(data: memoryview) -> bytes:
    output = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK])
        output += _UINT32_BE.pack(len(block))
        output += block
    return bytes(output)


def _snappy_decompressed(data: memoryview, limit: int) -> memoryview:
    # Walked twice rather than kept: blocks may be so small that a list of them outweighs the output.
    total = sum(_snappy_size(block) for block in _snappy_blocks(data))
    if total > limit:
        _too_large(limit)
    output = memoryview(bytearray(total))
    position = 0
    for block in _snappy_blocks(data):
        end = position + _snappy_size(block)
        try:
            cramjam.snappy.decompress_raw_into(block, output[position:end])
        except cramjam.DecompressionError as error:
            _invalid(Codec.SNAPPY, str(error))
        position = end
    return output


def _snappy_size(block: memoryview) -> int:
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        _invalid(Codec.SNAPPY, str(error))
    if not block or size > len(block) * _SNAPPY_RATIO_MAX:
        _invalid(Codec.SNAPPY, f"{len(block)} bytes cannot hold {size}")
    return size


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    """The one raw block, or those of xerial's framing, each behind its length; the header may come again
    where streams were joined.

    The two version numbers are ignored: some producers write them in the wrong byte order.
    """
    if bytes(data[:8]) != _XERIAL_MAGIC:
        yield data
        return
    position = 0
    while position < len(data):
        if bytes(data[position : position + 8]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
        else:
            prefix = data[position : position + 4]
            end = position + 4 + (_UINT32_BE.unpack(prefix)[0] if len(prefix) == 4 else 0)
            if len(prefix) < 4 or end > len(data):
                _invalid(Codec.SNAPPY, "cut short")
            yield data[position + 4 : end]
            position = end
    if position > len(data):
        _invalid(Codec.SNAPPY, "cut short")


def _lz4_compressed(data: Buffer, level: int) -> bytes:
    # As in Java, the default level is the fast compressor and every other one the thorough compressor,
    # which knows the levels 3 to 12. Linked blocks would be smaller, but Java cannot read them.
    native = 0 if level == LEVELS[Codec.LZ4][2] else min(max(level, 3), 12)
    stream = cramjam.lz4.Compressor(level=native, content_checksum=False, block_linked=False)
    stream.compress(bytes(data))
    return bytes(stream.finish())


def _lz4_bound(data: memoryview) -> int:
    """The most that the one frame in `data` can expand to. Java's reader sets what is accepted:
    a single frame, with independent blocks."""
    if _UINT32_LE.unpack_from(data)[0] != _LZ4_MAGIC:
        _invalid(Codec.LZ4, "no frame")
    flags = data[4]
    block_size_id = data[5] >> 4
    if flags >> 6 != 1 or flags & 0x03 or not 4 <= block_size_id <= 7:
        _invalid(Codec.LZ4, "unknown frame header")
    if not flags & 0x20:
        _invalid(Codec.LZ4, "linked blocks, which Kafka's clients cannot read")
    block_checksum = 4 if flags & 0x10 else 0
    content_size = 8 if flags & 0x08 else 0
    content_checksum = 4 if flags & 0x04 else 0
    block_max = 1 << (2 * block_size_id + 8)
    position = 7 + content_size
    bound = 0
    while field := _UINT32_LE.unpack_from(data, position)[0]:
        size = field & ~_LZ4_STORED
        bound += size if field & _LZ4_STORED else min(block_max, size * _LZ4_RATIO_MAX)
        position += 4 + size + block_checksum
    position += 4 + content_checksum
    if position != len(data):
        _invalid(Codec.LZ4, "trailing bytes" if position < len(data) else "cut short")
    return bound


def _zstd_bound(data: memoryview, limit: int) -> int:
    """The most that the frames in `data` can expand to; runs and stored blocks say it exactly."""
    bound = 0
    certain = 0
    position = 0
    while position < len(data) or not position:
        magic = _UINT32_LE.unpack_from(data, position)[0]
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
            position += 8 + _UINT32_LE.unpack_from(data, position + 4)[0]
            continue
        if magic != _ZSTD_MAGIC:
            _invalid(Codec.ZSTD, "no frame" if not position else "trailing bytes")
        descriptor = data[position + 4]
        single_segment = bool(descriptor & 0x20)
        dictionary_id = (0, 1, 2, 4)[descriptor & 0x03]
        content_size = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
        position += 5 + (not single_segment) + dictionary_id + content_size
        last = False
        while not last:
            field = data[position] | data[position + 1] << 8 | data[position + 2] << 16
            last = bool(field & 1)
            kind = field >> 1 & 0x03
            size = field >> 3
            if kind == _ZSTD_RESERVED or size > _ZSTD_BLOCK_MAX:
                _invalid(Codec.ZSTD, "impossible block")
            if kind in (_ZSTD_RAW, _ZSTD_RLE):
                certain += size
                bound += size
            else:
                bound += _ZSTD_BLOCK_MAX
            position += 3 + (1 if kind == _ZSTD_RLE else size)
        position += 4 if descriptor & 0x04 else 0
    if position != len(data):
        _invalid(Codec.ZSTD, "cut short")
    if certain > limit:
        _too_large(limit)
    return bound
