"""What must hold between a log and the model of its life, whatever has happened to it."""

from __future__ import annotations

from flintmq.records.batch import BatchHeader
from flintmq.records.record import records_of
from flintmq.storage import reader
from flintmq.storage.log import Log
from flintmq.storage.visibility import Isolation
from support.log.committed import read_committed
from support.log.model import Model, Told
from support.wire.batches import split

PLENTY = 1 << 30
_UNPACKED_MAX = 1 << 20


def read_all(log: Log, model: Model) -> dict[int, Told]:
    """Return the records that the log holds, and check its markers on the way."""
    found: dict[int, Told] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        part = reader.read(log, offset, PLENTY, Isolation.LOG_END, at_least_one=True)
        if part is None:
            break
        batches = split(part.read())
        assert sum(len(data) for _, data in batches) == part.size, "a torn batch is served"
        for header, data in batches:
            assert header.last_offset >= offset, "batches are out of order"
            offset = header.last_offset + 1
            if header.is_control:
                _check_marker(header, model)
                continue
            for record in records_of(data, limit=_UNPACKED_MAX):
                if record.offset >= log.start_offset:
                    assert record.offset not in found
                    found[record.offset] = Told(record.key, record.value, record.timestamp)
    return found


def _check_marker(header: BatchHeader, model: Model) -> None:
    ended = model.markers[header.base_offset]
    assert (header.producer_id, header.producer_epoch) == (ended.marker.producer_id, ended.marker.epoch)


def check_visible(log: Log) -> None:
    """A consumer sees nothing from the high watermark on."""
    for segment in log.segments:
        offset = max(segment.base_offset, log.start_offset)
        if offset < log.high_watermark:
            part = reader.read(log, offset, PLENTY, Isolation.READ_UNCOMMITTED, at_least_one=True)
            for header, _ in split(part.read()) if part else ():
                assert header.last_offset < log.high_watermark, "what may still be lost is visible"


def check_stable(log: Log, model: Model) -> None:
    """The last stable offset is where the first transaction began that is open, or whose marker may be lost.

    What was forgotten with deleted records may be left out.
    """
    lowest = highest = log.high_watermark
    for one in model.transactions():
        if one.marker_offset is not None and one.marker_offset < log.high_watermark:
            continue
        bases = [header.base_offset for header in one.batches]
        lowest = min(lowest, bases[0])
        highest = min([highest, *(base for base in bases if base >= log.segments[0].base_offset)])
    lowest, highest = max(lowest, log.start_offset), max(highest, log.start_offset)
    assert lowest <= log.last_stable_offset <= highest, (
        f"stable up to {log.last_stable_offset}, which should be {lowest} to {highest}"
    )


def check_committed(log: Log, model: Model, found: dict[int, Told], *, turn: int) -> None:
    """Who reads committed records gets those, whatever else there is, from wherever and in whatever pieces."""
    aborted = model.aborted()
    expected = {
        offset: told
        for offset, told in found.items()
        if offset < log.last_stable_offset and offset not in aborted
    }
    middle = log.start_offset + turn * 7 % max(1, log.end_offset - log.start_offset)
    for offset, max_bytes in ((log.start_offset, 300), (middle, PLENTY)):
        records = read_committed(log, offset, max_bytes)
        got = {record.offset: Told(record.key, record.value, record.timestamp) for record in records}
        assert got == {at: told for at, told in expected.items() if at >= offset}, (
            f"another view of what is committed from offset {offset} on"
        )


def check_missing(log: Log, model: Model, found: dict[int, Told]) -> None:
    """Only what a newer record of its key replaced may be missing, and tombstones; with it all before it.

    Records of aborted transactions may be missing, and replace none; those of open ones do not either.
    """
    aborted = model.aborted()
    counts_not = aborted | model.undecided()
    newest: dict[bytes | None, int] = {}
    for offset, told in model.records.items():
        if offset < model.cleaned_below and offset not in counts_not:
            newest[told.key] = offset
    oldest: dict[bytes | None, int] = {}
    for offset in sorted(found.keys() - counts_not, reverse=True):
        oldest[found[offset].key] = offset
    for offset, told in model.records.items():
        if offset < log.start_offset or offset in found:
            continue
        assert model.config.compacts, f"offset {offset} is lost"
        assert offset < model.cleaned_below, f"offset {offset} is lost without compaction"
        if offset not in aborted:
            assert newest.get(told.key, -1) > offset or told.value is None, (
                f"offset {offset}, the newest of {told.key!r}, is lost"
            )
            assert oldest.get(told.key, offset) >= offset, f"{told.key!r} has an older value than it had"
        model.gone.add(offset)
