from __future__ import annotations

import pytest

from flintmq.client.partitioner import StickyPartition, murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"", 275646681),
        (b"a", -1563381124),
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (bytes([0, 1, 2, 250, 255]), 259989013),
    ],
)
def test_the_hash_is_java_s(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


def test_a_key_s_partition_is_its_hash_without_the_sign() -> None:
    assert partition_of_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
    assert partition_of_key(b"abc", 1000) == 107


def test_records_without_a_key_stick_for_some_bytes_and_go_round() -> None:
    """KIP-480, KIP-794."""
    sticky = StickyPartition([0, 1, 2], sticky_bytes=100, first=4)
    assert [sticky.take(40) for _ in range(7)] == [1, 1, 2, 2, 0, 0, 1]


def test_a_record_larger_than_all_that_sticks_goes_somewhere_all_the_same() -> None:
    sticky = StickyPartition([0, 1], sticky_bytes=10)
    assert [sticky.take(50) for _ in range(3)] == [0, 1, 0]
