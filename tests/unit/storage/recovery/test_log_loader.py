"""Opening a log: clean, torn, damaged, without its indexes (R1, R2, S5)."""

from __future__ import annotations

import logging
import struct
from random import Random

import pytest

from flintmq.effects import Buffer, read_file, write_plainly
from flintmq.errors import CorruptionError
from flintmq.records.record import build_batch
from flintmq.storage import reader
from flintmq.storage.corrupt_ranges import CorruptRange
from flintmq.storage.durability.flush import FLUSH_FAILED
from flintmq.storage.limits import LogLimits
from flintmq.storage.segment import INDEX, LOG
from flintmq.storage.timestamp_lookup import offset_for_time
from flintmq.storage.visibility import Isolation
from flintmq.testing.simulation import SimulatedFile
from support.log.on_simulated_disk import DIRECTORY, NOW_MS, PLENTY, Bench, contents
from support.wire.batches import append, produced

SEEN = Isolation.READ_UNCOMMITTED


def test_a_new_folder_gives_an_empty_log() -> None:
    bench = Bench()
    assert (bench.log.start_offset, bench.log.end_offset, bench.log.high_watermark) == (0, 0, 0)
    assert bench.disk.list(DIRECTORY) == [f"{0:020d}.log"]


# -- after a clean stop


def test_after_a_clean_stop_nothing_is_scanned_and_everything_is_there() -> None:
    bench = Bench(segment_bytes=1000)
    written = bench.fill(30)
    epochs, bases = bench.log.epochs.encode(), bench.bases()
    bench.close()
    bench.open(clean=True)
    assert contents(bench.log) == written
    assert (bench.report.segments_scanned, bench.report.indexes_rebuilt) == (0, 0)
    assert bench.log.recovery_point == bench.log.end_offset == 30
    assert (bench.log.epochs.encode(), bench.bases()) == (epochs, bases)
    written += bench.fill(20)
    bench.close()
    assert contents(bench.open(clean=True)) == written


def test_a_clean_stop_keeps_what_rolling_by_time_needs() -> None:
    bench = Bench(segment_ms=1000)
    append(bench.log, produced(b"x", timestamp=NOW_MS))
    bench.close()
    bench.open(clean=True)
    append(bench.log, produced(b"x", timestamp=NOW_MS + 1001))
    assert bench.bases() == [0, 1]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("how", ["missing", "odd size", "beyond the log", "out of order"])
@pytest.mark.parametrize("which", [0, -1], ids=["sealed", "active"])
def test_a_damaged_index_is_rebuilt(suffix: str, how: str, which: int) -> None:
    bench = Bench(segment_bytes=1000)
    written = bench.fill(30)
    base = bench.bases()[which]
    bench.close()
    path = bench.path(base, suffix)
    before = read_file(bench.disk, path)
    if how == "missing":
        bench.disk.remove(path)
    elif how == "odd size":
        write_plainly(bench.disk, path, before + b"x")
    elif how == "beyond the log":
        far = (
            struct.pack(">Ii", 1 << 30, 1 << 30)
            if suffix == ".index"
            else struct.pack(">qI", 1 << 50, 1 << 30)
        )
        write_plainly(bench.disk, path, before + far)
    else:
        size = 8 if suffix == ".index" else 12
        write_plainly(bench.disk, path, before[size:] + before[:size])
    bench.open(clean=True)
    assert contents(bench.log) == written
    for offset in range(30):
        found = offset_for_time(bench.log, NOW_MS + offset * 10)
        assert found is not None
        if how != "out of order" or which == -1:
            assert found.offset == offset
    if how != "out of order":
        bench.close()
        assert read_file(bench.disk, path) == before


def test_an_index_that_leads_into_the_middle_of_a_batch_is_found_out() -> None:
    bench = Bench()
    written = bench.fill(10)
    bench.close()
    path = bench.path(0, ".index")
    data = bytearray(read_file(bench.disk, path))
    data[-1] ^= 4
    write_plainly(bench.disk, path, bytes(data))
    assert contents(bench.open(clean=True)) == written
    assert bench.report.segments_scanned == 1


def test_a_log_that_lost_its_tail_after_a_clean_stop_is_scanned() -> None:
    bench = Bench(index_interval_bytes=4096)
    written = bench.fill(10)
    bench.close()
    bench.disk.open(bench.path(0, ".log")).truncate(len(b"".join(written)) - 20)
    assert contents(bench.open(clean=True)) == written[:9]
    assert bench.report.bytes_cut == len(written[9]) - 20


# -- after an unclean one


@pytest.mark.parametrize("noise", [b"", b"\x01" * 40, b"\xff" * 200], ids=["nothing", "little", "much"])
def test_a_torn_tail_is_cut_and_reported(noise: bytes, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    written = bench.fill(3)
    whole = b"".join(written)
    for size in range(len(whole) - len(written[2]) + 1, len(whole), 7):
        torn = whole[:size] + noise
        write_plainly(bench.disk, bench.path(0, ".log"), torn)
        caplog.clear()
        bench.open()
        assert contents(bench.log) == written[:2]
        cut = len(torn) - len(whole) + len(written[2])
        assert bench.report.bytes_cut == cut
        assert f"cut {cut} bytes after offset 1" in caplog.text
        assert bench.disk.size(bench.path(0, ".log")) == len(whole) - len(written[2])


def test_a_batch_that_the_disk_returned_as_zeros_is_reported_as_lost() -> None:
    bench = Bench()
    written = bench.fill(3)
    size = len(written[2])
    bench.disk.open(bench.path(0, ".log")).pwrite(bytes(size), len(written[0] + written[1]))
    assert contents(bench.open()) == written[:2]
    assert bench.report.bytes_cut == size


def test_preallocated_zeros_are_not_a_loss() -> None:
    bench = Bench(preallocate=True, segment_bytes=5000)
    written = bench.fill(3)
    assert contents(bench.open()) == written
    assert bench.report.bytes_cut == 0
    written += bench.fill(3)
    assert contents(bench.open()) == written


def test_every_flipped_bit_of_an_unsynced_segment_is_found() -> None:
    """But for the leader epoch, which Kafka's format puts outside the CRC: it changes no record."""
    bench = Bench(segment_bytes=600)
    written = bench.fill(6)
    bases = bench.bases()
    assert len(bases) == 2
    clean_disk, random = bench.disk, Random(0)
    for base, path in ((base, bench.path(base, ".log")) for base in bases):
        ends = [0]
        for data in written[base : bases[1] if base == 0 else None]:
            ends.append(ends[-1] + len(data))
        for position in range(ends[-1]):
            hit = max(n for n, end in enumerate(ends) if end <= position)
            if 12 <= position - ends[hit] < 16:
                continue
            bench.disk = clean_disk.kill()
            bench.disk.flip(path, position, 1 << random.randrange(8))
            bench.open()
            assert contents(bench.log) == written[: base + hit]
            assert bench.report.bytes_cut > 0


def test_a_gap_between_segments_ends_the_log_and_what_follows_is_dropped() -> None:
    bench = Bench(segment_bytes=400)
    written = bench.fill(12)
    bases = bench.bases()
    bench.disk.open(bench.path(bases[1], ".log")).truncate(bench.log.segments[1].size - 1)
    bench.open()
    kept = bases[2] - 1
    assert contents(bench.log) == written[:kept]
    assert bench.bases() == bases[:2]
    assert bench.report.segments_dropped == len(bases) - 2
    assert not bench.disk.exists(bench.path(bases[2], ".log"))
    again = bench.fill(12)
    assert contents(bench.open()) == written[:kept] + again


def test_what_was_cut_or_dropped_does_not_come_back_with_a_power_loss() -> None:
    bench = Bench(segment_bytes=700)
    written = bench.fill(12)
    bench.flush()
    for snapshot in bench.log.snapshots.offsets:
        bench.disk.remove(bench.path(snapshot, ".snapshot"))
    bench.disk.sync_dir(DIRECTORY)
    bench.disk.flip(bench.path(0, ".log"), len(written[0]) + 70)
    bench.open()
    assert contents(bench.log) == written[:1]
    for _ in range(10):
        found = bench.disk.crash()
        assert read_file(found, bench.path(0, ".log")) == written[0]
        assert [name for name in found.list(DIRECTORY) if name.endswith(".log")] == [f"{0:020d}.log"]


def test_the_epochs_of_a_history_that_was_cut_are_forgotten() -> None:
    bench = Bench()
    for epoch in (1, 1, 1, 2, 2):
        append(bench.log, produced(b"x"), epoch=epoch)
    bench.flush()
    size = bench.log.size // 5
    bench.disk.open(bench.path(0, ".log")).truncate(2 * size)
    bench.open()
    for _ in range(4):
        append(bench.log, produced(b"y"), epoch=2)
    assert bench.open().epochs.encode() == b"0\n2\n1 0\n2 2\n"


def test_epochs_dropped_for_a_deletion_that_never_became_durable_are_found_again() -> None:
    bench = Bench(segment_bytes=400)
    for epoch in (1, 1, 2, 2, 3, 3, 3, 4):
        append(bench.log, produced(bytes(60)), epoch=epoch)
    bench.log.advance_start(5)
    bench.flush()
    assert bench.open(recovery_point=8).epochs.encode() == b"0\n4\n1 0\n2 2\n3 4\n4 7\n"
    assert bench.open(recovery_point=8, start_offset=5).epochs.encode() == b"0\n2\n3 5\n4 7\n"


def test_garbage_behind_the_last_batch_of_a_segment_does_not_cost_the_segments_after_it() -> None:
    bench = Bench(segment_bytes=400)
    written = bench.fill(12)
    bench.disk.open(bench.path(0, ".log")).pwrite(b"garbage", bench.log.segments[0].size)
    assert contents(bench.open()) == written
    assert bench.report.bytes_cut == 7


def test_only_segments_that_reach_above_the_recovery_point_are_scanned() -> None:
    bench = Bench(segment_bytes=400)
    bench.fill(20)
    bench.flush()
    bases = bench.bases()
    bench.open(recovery_point=bases[3] + 1)
    assert bench.report.segments_scanned == len(bases) - 3
    assert bench.log.recovery_point == bases[3] + 1


def test_a_segment_sealed_right_at_the_recovery_point_does_not_keep_the_index_of_an_earlier_stop() -> None:
    bench = Bench(segment_bytes=800)
    bench.fill(1)
    bench.close()
    bench.open(clean=True)
    bench.fill(3)
    bench.flush()
    bench.reconfigure(segment_bytes=300)
    bench.fill(1)
    assert bench.bases() == [0, 4]
    bench.open(recovery_point=4)
    assert bench.log.segments[0].max_timestamp == NOW_MS + 30
    found = offset_for_time(bench.log, NOW_MS + 25)
    assert found is not None
    assert found.offset == 3


def test_offsets_must_follow_each_other_unless_compaction_may_have_been_there() -> None:
    for policy, kept in ((("delete",), 3), (("compact",), 5)):
        bench = Bench(cleanup_policy=policy)
        bench.fill(3)
        bench.log.end_offset = 10
        bench.fill(2)
        assert len(contents(bench.open())) == kept


def test_a_batch_larger_than_a_chunk_is_checked_in_pieces() -> None:
    bench = Bench(limits=LogLimits(scan_bytes=1024))
    written = [*bench.fill(2), *bench.fill(1, size=9000), *bench.fill(2)]
    assert contents(bench.open()) == written
    bench.disk.flip(bench.path(0, ".log"), len(written[0] + written[1]) + 5000)
    assert contents(bench.open()) == written[:2]


def test_a_length_that_claims_the_rest_of_a_large_file_is_not_read_into_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(limits=LogLimits(scan_bytes=1024))
    written = bench.fill(100)
    bench.disk.open(bench.path(0, ".log")).pwrite((12_000).to_bytes(4, "big"), 8)
    sizes: list[int] = []
    pread = SimulatedFile.pread

    def counting(self: SimulatedFile, size: int, position: int) -> bytes:
        data = pread(self, size, position)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(SimulatedFile, "pread", counting)
    assert bench.open().end_offset == 0
    assert max(sizes) <= 1024
    assert len(b"".join(written)) > 12_000


# -- below the recovery point


def test_a_damaged_segment_below_the_recovery_point_is_quarantined_and_the_rest_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(segment_bytes=500)
    written = bench.fill(20)
    first, following = bench.bases()[1:3]
    bench.close()
    bench.disk.remove(bench.path(first, ".index"))
    bench.disk.flip(bench.path(first, ".log"), len(written[first]) + 70)
    bench.open(clean=True)
    bad = CorruptRange(first + 1, following)
    assert bench.log.corrupt == bench.report.quarantined == [bad]
    assert any(record.levelno == logging.ERROR for record in caplog.records)
    assert bench.log.end_offset == 20
    for offset in range(20):
        if bad.base_offset <= offset < bad.end_offset:
            with pytest.raises(CorruptionError):
                reader.read(bench.log, offset, PLENTY, SEEN, at_least_one=True)
        else:
            part = reader.read(bench.log, offset, PLENTY, SEEN, at_least_one=True)
            assert part is not None
            assert part.read().startswith(written[offset])
    written += bench.fill(5)
    part = reader.read(bench.log, 24, PLENTY, SEEN, at_least_one=True)
    assert part is not None
    assert part.read() == written[24]


# -- the start


def test_segments_below_the_start_that_a_crash_brought_back_are_removed_whatever_is_missing_between() -> None:
    bench = Bench(segment_bytes=400)
    written = bench.fill(20)
    bases = bench.bases()
    bench.disk.remove(bench.path(bases[1], ".log"))
    bench.open(start_offset=bases[3] + 1)
    assert bench.bases() == bases[3:]
    assert contents(bench.log) == written[bases[3] + 1 :]
    assert not bench.disk.exists(bench.path(0, ".log"))


def test_a_start_beyond_all_records_that_survived_begins_an_empty_log_there() -> None:
    bench = Bench(segment_bytes=400)
    bench.fill(8)
    bench.open(start_offset=50)
    assert (bench.log.start_offset, bench.log.end_offset) == (50, 50)
    bench.flush()
    assert bench.log.offline is None
    written = bench.fill(3)
    assert contents(bench.open(start_offset=50)) == written


def test_indexes_without_a_log_and_files_written_aside_are_removed() -> None:
    bench = Bench()
    bench.fill(1)
    for name in (f"{7:020d}.index", f"{7:020d}.timeindex", f"{0:020d}.index.tmp", "5.log", "notes.txt"):
        write_plainly(bench.disk, f"{DIRECTORY}/{name}", b"12345678")
    bench.open()
    assert bench.disk.list(DIRECTORY) == [f"{0:020d}.log", "5.log", "notes.txt"]


# -- producers


def test_a_damaged_snapshot_is_removed_and_an_older_one_used() -> None:
    bench = Bench(segment_bytes=400)
    for sequence in range(12):
        append(bench.log, produced(bytes(60), producer_id=9, epoch=0, sequence=sequence))
    newest = f"{DIRECTORY}/{bench.bases()[-1]:020d}.snapshot"
    bench.disk.flip(newest, 20)
    bench.open()
    assert not bench.disk.exists(newest)
    assert append(bench.log, produced(bytes(60), producer_id=9, epoch=0, sequence=11)).base_offset == 11
    assert bench.log.end_offset == 12


def test_without_any_snapshot_the_whole_log_is_replayed() -> None:
    bench = Bench(segment_bytes=400)
    for sequence in range(12):
        append(bench.log, produced(bytes(60), producer_id=9, epoch=0, sequence=sequence))
    state = bench.log.producers.encode()
    for name in bench.disk.list(DIRECTORY):
        if name.endswith(".snapshot"):
            bench.disk.remove(f"{DIRECTORY}/{name}")
    assert bench.open().producers.encode() == state


def test_a_snapshot_of_records_that_were_cut_is_removed_for_good() -> None:
    bench = Bench(segment_bytes=400)
    for sequence in range(6):
        append(bench.log, produced(bytes(60), producer_id=9, epoch=0, sequence=sequence))
    bench.disk.sync_all()
    bench.disk.open(bench.path(0, ".log")).truncate(10)
    bench.open()
    assert (bench.log.end_offset, len(bench.log.producers)) == (0, 0)
    for _ in range(10):
        names = bench.disk.crash().list(DIRECTORY)
        assert not [name for name in names if name.endswith(".snapshot")]


def test_markers_are_replayed_so_that_the_last_stable_offset_is_right() -> None:
    bench = Bench()
    log = bench.log
    append(log, produced(b"a", producer_id=9, epoch=0, sequence=0, is_transactional=True))
    append(log, produced(b"b", producer_id=10, epoch=0, sequence=0, is_transactional=True))
    marker = build_batch(
        [(struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 3), NOW_MS, ())],
        producer_id=9,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    position = log.active.size
    bench.log.active.open().pwrite(marker[:7] + b"\x02" + marker[8:12] + bytes(4) + marker[16:], position)
    bench.open()
    assert bench.log.end_offset == 3
    assert bench.log.last_stable_offset == 1


# -- after a failed flush


def test_what_a_failed_fsync_left_in_memory_only_is_written_again_by_the_next_process() -> None:
    bench = Bench(segment_bytes=400, flush_messages=1)
    written = bench.fill(5)
    bench.disk.fail("sync", nth=2)
    with pytest.raises(OSError, match="Input/output"):
        bench.flush()
    assert bench.disk.exists(f"{DIRECTORY}/{FLUSH_FAILED}")
    bench.disk = bench.disk.kill()
    assert contents(bench.open()) == written
    assert not bench.disk.exists(f"{DIRECTORY}/{FLUSH_FAILED}")
    bench.disk.sync_dir("data")
    for _ in range(10):
        found = bench.disk.crash()
        found, bench.disk = bench.disk, found
        assert contents(bench.open()) == written
        bench.disk = found


def test_with_flush_messages_1_what_is_found_is_synced_before_it_is_served() -> None:
    bench = Bench(flush_messages=1)
    written = bench.fill(3)
    synced: list[str] = []
    bench.disk.observer = lambda operation, path: synced.append(path) if operation == "sync" else None
    bench.open()
    assert bench.path(0, ".log") in synced
    assert bench.log.recovery_point == bench.log.high_watermark == 3
    assert contents(bench.log) == written


def test_a_write_that_never_returned_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    written = bench.fill(2)
    pwrite = SimulatedFile.pwrite

    def half(self: SimulatedFile, data: Buffer, position: int) -> None:
        pwrite(self, bytes(data)[: len(data) // 2], position)
        raise KeyboardInterrupt

    monkeypatch.setattr(SimulatedFile, "pwrite", half)
    with pytest.raises(KeyboardInterrupt):
        bench.fill(1)
    monkeypatch.undo()
    assert contents(bench.open()) == written


def test_a_sealed_segment_whose_cut_was_lost_is_whole() -> None:
    """A power loss may bring back the zeros that were preallocated behind its last batch."""
    bench = Bench(preallocate=True, segment_bytes=1000)
    written = bench.fill(20)
    flush = bench.log.prepare_flush()
    flush.run()
    bench.log.flushed(flush, 0)
    first, second = bench.log.segments[:2]
    file = bench.disk.open(first.path(LOG))
    file.truncate(first.size)
    file.allocate(1000)
    bench.disk.remove(first.path(INDEX))
    log = bench.open(recovery_point=second.base_offset)
    assert log.corrupt == []
    assert contents(log) == written
    assert bench.disk.size(first.path(LOG)) == first.size, "a later start takes the file as it is"
