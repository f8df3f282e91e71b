"""Partitions for a whole column are those that are found key by key."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from flintmq.arrow.codec.partitioner import NO_KEY, Spread, murmur2_of, partitions_of_keys
from flintmq.client.partitioner import murmur2, partition_of_key


@pytest.mark.parametrize("seed", range(6))
def test_hashes_are_those_of_one_key_at_a_time(seed: int) -> None:
    rng = random.Random(seed)
    keys = [rng.randbytes(rng.choice((0, 1, 2, 3, 4, 5, 7, 8, 21, 256, 257, 3000))) for _ in range(300)]
    assert murmur2_of(pa.array(keys)).tolist() == [murmur2(key) for key in keys]


def test_a_column_of_empty_keys_has_hashes() -> None:
    assert murmur2_of(pa.array([b"", b""])).tolist() == [murmur2(b"")] * 2


def test_a_slice_is_hashed_by_its_own_keys() -> None:
    keys = [b"key-%d" % number for number in range(50)]
    assert murmur2_of(pa.array(keys).slice(20, 10)).tolist() == [murmur2(key) for key in keys[20:30]]


def test_null_keys_have_no_partition_and_the_others_theirs() -> None:
    keys = [b"a", None, b"b", None]
    found = partitions_of_keys(pa.array(keys, pa.binary()), 5).tolist()
    assert found == [partition_of_key(b"a", 5), NO_KEY, partition_of_key(b"b", 5), NO_KEY]


def test_rows_without_a_key_stay_together_for_a_batch_and_go_round() -> None:
    spread = Spread(3, batch_bytes=100, first=2)
    assert spread.take(np.array([40, 40, 40, 40, 40, 40])).tolist() == [2, 2, 2, 0, 0, 1]
    assert spread.take(np.array([10, 10])).tolist() == [2, 2]
    assert spread.take(np.array([], np.int64)).tolist() == []
    assert spread.take(np.array([10])).tolist() == [0]
