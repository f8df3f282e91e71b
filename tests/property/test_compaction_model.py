"""Whatever is written, compaction leaves what a plain model says, pass after pass (Z7, KIP-58, KIP-98, KIP-534)."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.effects import read_file
from flintmq.records.batch import DELETE_HORIZON, read_header
from flintmq.records.compression import Codec
from flintmq.records.record import records_of
from flintmq.storage.aborted_transactions import decode_aborted
from flintmq.storage.compaction.job import CompactionSummary, GroupResult
from flintmq.storage.indexes import OffsetIndex, TimeIndex
from flintmq.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX
from support.log.on_real_disk import NOW_MS, PLENTY, LogOnDisk

RETENTION_MS = 1000
THREE_KEYS = 96
"""Memory for as many: several passes are needed."""

KEYS = st.one_of(st.integers(0, 5), st.integers(0, 40)).map(lambda n: b"k%d" % n)
RECORD = st.tuples(
    st.one_of(KEYS, KEYS, KEYS, st.none()), st.one_of(st.none(), st.binary(max_size=4)), st.integers(0, 3)
)
DATA = st.tuples(
    st.just("data"),
    st.lists(RECORD, min_size=1, max_size=6),
    st.sampled_from(Codec),
    st.booleans(),
    st.sampled_from((None, 1, 2, 7)),
)
"""Records, codec, whether the broker's time counts, and a producer: 1 and 2 are transactional, 7 idempotent."""
MARKER = st.tuples(st.just("marker"), st.sampled_from((1, 2)), st.booleans())
ROLL = st.tuples(st.just("roll"))
STEPS = st.lists(st.one_of(DATA, DATA, DATA, MARKER, ROLL), min_size=1, max_size=25)


@dataclass(eq=False)
class Transaction:
    producer_id: int
    first_offset: int
    aborted: bool | None = None
    """None while it is open."""
    marker_offset: int = -1


@dataclass(eq=False)
class ModelBatch:
    base_offset: int
    last_offset: int
    records: list[tuple[int, int, bytes | None, bytes | None]]
    """Offset, time, key, value."""
    producer_id: int
    transaction: Transaction | None
    is_marker: bool = False
    horizon: int | None = None


@dataclass
class Model:
    batches: list[ModelBatch] = field(default_factory=list)

    def pass_end(
        self, first_dirty: int, end: int, capacity: int, bases: list[int]
    ) -> tuple[dict[bytes, int], int]:
        newest: dict[bytes, int] = {}
        latest = first_dirty - 1
        for batch in self.batches:
            if batch.base_offset >= end:
                break
            # All that was before this one's segment is known, though the last batch there may be gone.
            latest = max(latest, max(base for base in bases if base <= batch.base_offset) - 1)
            if not (batch.is_marker or _is_aborted(batch)):
                for offset, _, key, _ in batch.records:
                    if offset >= first_dirty and key is not None:
                        if len(newest) == capacity:
                            return newest, latest
                        newest[key] = latest = offset
            latest = max(latest, batch.last_offset)
        return newest, end - 1

    def clean(
        self,
        first_dirty: int,
        end: int,
        *,
        capacity: int,
        bases: list[int],
        now_ms: int,
        producers: dict[int, tuple[int, int]],
    ) -> int:
        """Answers with the first offset that is not cleaned. Segments at `bases` beyond that one stay as they are."""
        newest, latest = self.pass_end(first_dirty, end, capacity, bases)
        end_of_pass = min([base for base in bases if base > latest], default=end)
        with_data = {id(batch.transaction) for batch in self.batches if not batch.is_marker}
        left = []
        for batch in self.batches:
            if batch.base_offset >= min(end, end_of_pass):
                left.append(batch)
                continue
            is_spent = batch.is_marker and (id(batch.transaction) not in with_data or not batch.records)
            has_expired = batch.horizon is not None and batch.horizon <= now_ms
            if batch.is_marker:
                kept = [] if is_spent and has_expired else batch.records
            elif _is_aborted(batch):
                kept = []
            else:
                kept = [
                    record
                    for record in batch.records
                    if record[0] > latest
                    or (
                        record[2] is not None
                        and record[0] >= newest.get(record[2], -1)
                        and (record[3] is not None or not has_expired)
                    )
                ]
            gets_horizon = is_spent or any(record[3] is None for record in kept)
            if kept and gets_horizon and batch.horizon is None:
                batch.horizon = now_ms + RETENTION_MS
            if not kept:
                batch.horizon = None
            batch.records = kept
            if kept or producers.get(batch.producer_id, (0, -2))[1] == batch.last_offset or (
                batch.last_offset + 1 == end
            ):  # fmt: skip
                left.append(batch)
        self.batches = left
        return latest + 1


def _is_aborted(batch: ModelBatch) -> bool:
    return batch.transaction is not None and batch.transaction.aborted is True


class Story:
    def __init__(self) -> None:
        self.log = LogOnDisk()
        self.model = Model()
        self.open: dict[int, Transaction] = {}
        self.sequence = 0
        self.last_data: dict[int, tuple[int, int]] = {}

    def data(
        self,
        records: list[tuple[bytes | None, bytes | None, int]],
        codec: Codec,
        by_broker: bool,
        producer_id: int | None,
    ) -> None:
        times = [NOW_MS + self.log.end_offset + shift for _, _, shift in records]
        append_time = NOW_MS + self.log.end_offset + 50 if by_broker else None
        options = {}
        if producer_id is not None:
            options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": self.sequence}
            self.sequence += len(records)
        transaction = None
        if producer_id in (1, 2):
            fresh = Transaction(producer_id or 0, self.log.end_offset)
            transaction = self.open.setdefault(producer_id or 0, fresh)
        header = self.log.append(
            [(key, value) for key, value, _ in records],
            timestamps=times,
            codec=codec,
            append_time=append_time,
            is_transactional=transaction is not None,
            **options,
        )
        self.model.batches.append(
            ModelBatch(
                header.base_offset,
                header.last_offset,
                [
                    (header.base_offset + n, times[n] if append_time is None else append_time, key, value)
                    for n, (key, value, _) in enumerate(records)
                ],
                -1 if producer_id is None else producer_id,
                transaction,
            )
        )
        if producer_id is not None:
            self.last_data[producer_id] = (0, header.last_offset)

    def marker(self, producer_id: int, abort: bool) -> None:
        transaction = self.open.pop(producer_id, None)
        if transaction is None:
            return
        transaction.aborted = abort
        header = self.log.append_marker(producer_id, transaction.first_offset, abort=abort)
        transaction.marker_offset = header.base_offset
        ((_, batch),) = self.log.batches()[-1:]
        (record,) = records_of(batch, limit=PLENTY)
        self.model.batches.append(
            ModelBatch(
                header.base_offset,
                header.last_offset,
                [(record.offset, record.timestamp, record.key, record.value)],
                producer_id,
                transaction,
                is_marker=True,
            )
        )

    def tell(self, steps: list[tuple]) -> None:  # type: ignore[type-arg]
        for step in steps:
            if step[0] == "data":
                self.data(*step[1:])
            elif step[0] == "marker":
                self.marker(*step[1:])
            else:
                self.log.roll()

    def end(self) -> int:
        """As the broker finds it: no open transaction, nothing active."""
        return min([self.log.bases[-1], *(transaction.first_offset for transaction in self.open.values())])

    def check(self) -> None:
        found = []
        for header, batch in self.log.batches():
            horizon = header.base_timestamp if header.attributes & DELETE_HORIZON else None
            records = [(r.offset, r.timestamp, r.key, r.value) for r in records_of(batch, limit=PLENTY)]
            found.append((header.base_offset, header.last_offset, header.producer_id, horizon, records))
        assert found == [
            (b.base_offset, b.last_offset, b.producer_id, b.horizon, b.records) for b in self.model.batches
        ]
        self.check_indexes()

    def check_indexes(self) -> None:
        for base in self.log.bases[:-1]:
            if not self.log.disk.exists(self.log.path(base, INDEX)):
                continue  # not cleaned yet
            data = read_file(self.log.disk, self.log.path(base, LOG))
            offsets = OffsetIndex.decode(read_file(self.log.disk, self.log.path(base, INDEX)))
            assert offsets.is_sound(len(data))
            for relative, position in zip(offsets.offsets, offsets.positions, strict=True):
                assert read_header(data, position).last_offset == base + relative
            assert TimeIndex.decode(read_file(self.log.disk, self.log.path(base, TIME_INDEX))).is_sound()

    def aborted_with_data(self) -> set[tuple[int, int]]:
        return {
            (batch.producer_id, batch.transaction.marker_offset)
            for batch in self.model.batches
            if batch.transaction is not None and batch.transaction.aborted and not batch.is_marker
        }

    def aborted_in_index(self) -> set[tuple[int, int]]:
        found = set()
        for base in self.log.bases:
            if self.log.disk.exists(self.log.path(base, TXN_INDEX)):
                for entry in decode_aborted(read_file(self.log.disk, self.log.path(base, TXN_INDEX))):
                    found.add((entry.producer_id, entry.last_offset))
        return found

    def committed(self) -> dict[bytes, bytes]:
        """What a reader that skips aborted data ends up with, up to the first open transaction."""
        values: dict[bytes, bytes] = {}
        for batch in self.model.batches:
            if batch.is_marker or _is_aborted(batch):
                continue
            for _, _, key, value in batch.records:
                if key is not None and value is not None:
                    values[key] = value
                elif key is not None:
                    values.pop(key, None)
        return values


@settings(max_examples=300, deadline=None)
@given(
    chapters=st.lists(
        st.tuples(STEPS, st.sampled_from((0, 500, 1000, 2500)), st.booleans(), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    memory=st.sampled_from((THREE_KEYS, 1 << 10, 1 << 16)),
    segment_bytes=st.sampled_from((1, 600, PLENTY)),
    remembers=st.booleans(),
)
def test_compaction_leaves_what_the_model_says(
    chapters: list[tuple[list[tuple], int, bool, bool]],  # type: ignore[type-arg]
    memory: int,
    segment_bytes: int,
    remembers: bool,
) -> None:
    story = Story()
    now_ms = NOW_MS
    dirty = 0
    for steps, elapsed_ms, ends_here, forgets in chapters:
        story.tell(steps)
        if ends_here:
            story.log.roll()
        if forgets:
            dirty = 0  # as without a checkpoint: batches with gaps in them are dirty again
        now_ms += elapsed_ms
        end = max(dirty, story.end())
        while True:
            producers = story.last_data if remembers else {}
            before = story.committed()
            bases = list(story.log.bases)
            events = story.log.clean(
                dirty,
                end,
                now_ms=now_ms,
                dedupe_bytes=memory,
                segment_bytes=segment_bytes,
                delete_retention_ms=RETENTION_MS,
                producers=producers,
            )
            summary = events[-1]
            assert isinstance(summary, CompactionSummary)
            touched = [base for event in events if isinstance(event, GroupResult) for base in event.bases]
            assert touched == bases[: len(touched)]
            assert summary.next_dirty_offset == story.model.clean(
                dirty, end, capacity=summary.key_capacity, bases=bases, now_ms=now_ms, producers=producers
            )
            story.check()
            assert story.committed() == before
            # Whose data is there is in the index, else a reader would take aborted data for committed.
            assert story.aborted_with_data() <= story.aborted_in_index()
            assert summary.next_dirty_offset > dirty or summary.next_dirty_offset == end
            dirty = summary.next_dirty_offset
            if dirty == end:
                break
