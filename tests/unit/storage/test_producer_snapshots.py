"""Producer snapshots: which are kept, which is used, and disks without space for them (R1, KIP-98)."""

from __future__ import annotations

import pytest

from flintmq.effects import write_plainly
from flintmq.errors import StorageError
from flintmq.records.batch import read_header
from flintmq.storage.limits import LogLimits
from flintmq.storage.producer_snapshots import ProducerSnapshots
from flintmq.storage.producer_state import ProducerState
from flintmq.testing.simulation import SimulatedDisk
from support.log.on_simulated_disk import DIRECTORY, Bench
from support.wire.batches import append, produced


def test_old_snapshots_are_removed_but_for_a_few() -> None:
    bench = Bench(segment_bytes=400)
    bench.fill(40)
    names = [name for name in bench.disk.list(DIRECTORY) if name.endswith(".snapshot")]
    assert len(names) == 3
    assert names[-1] == f"{bench.bases()[-1]:020d}.snapshot"


def test_a_producer_snapshot_that_finds_no_space_does_not_stop_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(segment_bytes=400)
    append(bench.log, produced(bytes(200), producer_id=1, epoch=0, sequence=0))
    size = len(produced(bytes(200)))
    bench.disk.free_bytes = 20
    with pytest.raises(StorageError):
        append(bench.log, produced(bytes(200), producer_id=1, epoch=0, sequence=1))
    assert "snapshot" in caplog.text
    bench.disk.free_bytes = size
    append(bench.log, produced(bytes(200), producer_id=1, epoch=0, sequence=1))
    assert bench.open().end_offset == 2


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(1, journaling=False)
    disk.makedirs(DIRECTORY)
    return disk


def producers(*ids: int) -> ProducerState:
    known = ProducerState()
    for producer_id in ids:
        known.record(read_header(produced(b"x", producer_id=producer_id, epoch=0, sequence=0)), producer_id)
    return known


def test_the_newest_durable_one_is_kept_however_old(disk: SimulatedDisk) -> None:
    snapshots = ProducerSnapshots(disk, DIRECTORY, limits=LogLimits(snapshots_kept=2))
    snapshots.write(producers(1), 10)
    snapshots.synced(snapshots.begin_sync())
    assert (snapshots.durable_offset, snapshots.begin_sync()) == (10, -1)
    for end_offset in (20, 30, 40, 50):
        snapshots.write(producers(1), end_offset)
    assert snapshots.offsets == [10, 40, 50]
    snapshots.synced(snapshots.begin_sync())
    snapshots.write(producers(1), 60)
    snapshots.write(producers(1), 70)
    assert snapshots.offsets == [50, 60, 70]


def test_one_that_is_being_synced_is_not_pruned(disk: SimulatedDisk) -> None:
    snapshots = ProducerSnapshots(disk, DIRECTORY, limits=LogLimits(snapshots_kept=1))
    snapshots.write(producers(1), 10)
    assert snapshots.begin_sync() == 10
    snapshots.write(producers(1), 20)
    snapshots.write(producers(1), 30)
    assert snapshots.offsets == [10, 30]


def test_the_newest_usable_one_in_range_is_found(disk: SimulatedDisk) -> None:
    written = ProducerSnapshots(disk, DIRECTORY)
    for number, end_offset in enumerate((10, 20, 30)):
        written.write(producers(*range(number + 1)), end_offset)
    write_plainly(disk, written.path(20), b"damaged")
    snapshots = ProducerSnapshots(disk, DIRECTORY)
    snapshots.load(25)
    assert snapshots.offsets == [10, 20], "the one of records that were cut is gone"
    state, offset = snapshots.newest_between(5, 25)
    assert ([one.producer_id for one in state], offset) == ([0], 10)
    assert snapshots.offsets == [10]
    state, offset = snapshots.newest_between(11, 25)
    assert (len(state), offset) == (0, 11)
