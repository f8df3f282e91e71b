"""Leader epochs (KIP-101, KIP-279) and the text files that hold them and other offsets."""

from __future__ import annotations

import pytest

from flintmq.errors import CorruptionError
from flintmq.storage.durability import offset_checkpoint
from flintmq.storage.leader_epochs import LeaderEpochs
from support.log.on_simulated_disk import Bench
from support.wire.batches import append, produced


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start in entries:
        epochs.assign(epoch, start)
    return epochs


def test_the_epoch_of_an_offset_is_the_one_it_was_written_in() -> None:
    epochs = epochs_of((1, 0), (3, 10), (4, 30))
    assert [epochs.epoch_of(offset) for offset in (0, 9, 10, 29, 30, 99)] == [1, 1, 3, 3, 4, 4]
    assert epochs_of((1, 5)).epoch_of(4) == -1


def test_the_end_of_an_epoch_is_the_start_of_the_next_or_the_end_of_the_log() -> None:
    epochs = epochs_of((1, 5), (3, 10), (4, 30))
    assert epochs.end_offset_of(4, 50) == (4, 50)
    assert epochs.end_offset_of(3, 50) == (3, 30)
    assert epochs.end_offset_of(2, 50) == (1, 10)
    assert epochs.end_offset_of(1, 50) == (1, 10)
    assert epochs.end_offset_of(0, 50) == (0, 5)
    assert epochs.end_offset_of(5, 50) == epochs.end_offset_of(-1, 50) == (-1, -1)
    assert LeaderEpochs().end_offset_of(0, 50) == (-1, -1)


def test_an_assignment_drops_what_it_contradicts() -> None:
    assert (
        epochs_of((1, 0), (2, 10), (3, 20), (4, 15)).encode() == epochs_of((1, 0), (2, 10), (4, 15)).encode()
    )
    assert epochs_of((1, 0), (3, 20), (2, 30)).encode() == epochs_of((1, 0), (2, 30)).encode()
    assert epochs_of((1, 0), (1, 30)).encode() == epochs_of((1, 0)).encode()


def test_truncation_at_either_end() -> None:
    epochs = epochs_of((1, 0), (3, 10), (4, 30))
    epochs.truncate_from_end(30)
    assert epochs.encode() == epochs_of((1, 0), (3, 10)).encode()
    epochs.truncate_from_start(12)
    assert epochs.encode() == epochs_of((3, 12)).encode()
    assert epochs.first_offset == 12
    epochs.truncate_from_start(5)
    assert epochs.first_offset == 12


def test_both_files_have_kafkas_text_format() -> None:
    assert epochs_of((1, 0), (3, 10)).encode() == b"0\n2\n1 0\n3 10\n"
    offsets = {("b", 0): 7, ("a", 12): 1}
    assert offset_checkpoint.encode(offsets) == b"0\n2\na 12 1\nb 0 7\n"
    assert offset_checkpoint.decode(offset_checkpoint.encode(offsets)) == offsets
    assert offset_checkpoint.decode(b"0\n0\n") == {}


@pytest.mark.parametrize(
    "data",
    [b"", b"0\n", b"1\n0\n", b"0\n2\n1 0\n", b"0\n1\n1 x\n", b"0\n1\n1 10", b"\xff\n0\n", b"0\n1\n1\n"],
)
def test_what_makes_no_sense_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        LeaderEpochs.decode(data)
    with pytest.raises(CorruptionError):
        offset_checkpoint.decode(data)


def test_a_file_cut_anywhere_is_refused_or_was_already_whole() -> None:
    data = offset_checkpoint.encode({("topic", 0): 12345, ("topic", 1): 99})
    for size in range(len(data)):
        with pytest.raises(CorruptionError):
            offset_checkpoint.decode(data[:size])


@pytest.mark.parametrize("damage", [None, b"", b"nonsense"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_or_damaged_epoch_file_is_rebuilt_from_the_batches(damage: bytes | None, clean: bool) -> None:
    bench = Bench(segment_bytes=400)
    for n in range(20):
        append(bench.log, produced(bytes(60)), epoch=n // 5)
    epochs = bench.log.epochs.encode()
    assert epochs == b"0\n4\n0 0\n1 5\n2 10\n3 15\n"
    bench.close()
    path = "data/orders-0/leader-epoch-checkpoint"
    bench.disk.remove(path)
    if damage is not None:
        bench.disk.open(path, create=True).pwrite(damage, 0)
    assert bench.open(clean=clean, recovery_point=20).epochs.encode() == epochs
