from __future__ import annotations

import pytest

from flintmq.client.batching import ProducerSequences, RecordAccumulator, size_of
from flintmq.records.batch import HEADER_SIZE
from flintmq.records.record import NewRecord, build_batch


def record(value: bytes, key: bytes | None = None) -> NewRecord:
    return key, value, 0, ()


def test_records_of_a_partition_leave_in_order_in_batches_up_to_the_bound() -> None:
    batches = RecordAccumulator(HEADER_SIZE + 3 * size_of(record(b"x" * 10)))
    for number in range(7):
        batches.add(0, record(b"%010d" % number))
    taken = [batches.take()[0] for _ in range(3)]
    assert [len(batch) for batch in taken] == [3, 3, 1]
    assert [int(value or b"") for batch in taken for _, value, _, _ in batch] == list(range(7))
    assert not batches
    assert batches.bytes == 0


def test_partitions_are_taken_together_one_batch_each() -> None:
    batches = RecordAccumulator(1000)
    for partition in (2, 0, 2):
        batches.add(partition, record(b"v"))
    assert {partition: len(records) for partition, records in batches.take().items()} == {2: 2, 0: 1}


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    batches = RecordAccumulator(100)
    for value in (b"a", b"b" * 500, b"c"):
        batches.add(0, record(value))
    assert [len(batches.take()[0]) for _ in range(3)] == [1, 1, 1]


def test_what_is_put_back_is_taken_first_and_grows_no_more() -> None:
    batches = RecordAccumulator(1000)
    batches.add(0, record(b"first"))
    batches.add(0, record(b"second"))
    first, second = batches.take()[0]
    batches.put_back(0, [second])
    batches.add(0, record(b"third"))
    batches.put_back(0, [first])
    order = [batches.take()[0] for _ in range(3)]
    assert [[value for _, value, _, _ in batch] for batch in order] == [[b"first"], [b"second"], [b"third"]]


@pytest.mark.parametrize(
    "one",
    [record(b""), record(b"v" * 200, b"k" * 70), (None, None, 1 << 40, (("ключ", b"v" * 130), ("h", None)))],
)
def test_the_estimated_size_is_never_below_the_real_one(one: NewRecord) -> None:
    assert HEADER_SIZE + size_of(one) >= len(build_batch([one]))


def test_sequences_count_on_per_partition_and_wrap() -> None:
    sequences = ProducerSequences()
    assert sequences.next(0) == 0
    sequences.acknowledged(0, 3)
    sequences.acknowledged(1, 0x7FFFFFFF)
    sequences.acknowledged(1, 2)
    assert (sequences.next(0), sequences.next(1)) == (3, 1)
