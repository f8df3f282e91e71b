"""`lake latest`: the last row of each key, however it came about."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flintmq.lake.compact.compact import compact
from flintmq.lake.latest.latest import SUFFIX, LatestReport, latest
from flintmq.lake.latest.merge import BUCKET
from flintmq.lake.tables.table import Format, TableChange, TableError, TableState, TopicProgress
from support.lake.data_files import DAY, TOPIC, TOPIC_ID
from support.lake.table_location import TableLocation
from support.lake.table_pairs import RAW, Pair, Record, raw_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHOUT_SPARK = True


@pytest.fixture(params=list(Format))
def format(request: pytest.FixtureRequest) -> Format:
    return Format(request.param)


def test_the_last_row_of_each_key_stays(spark: SparkSession, tmp_path: Path, format: Format) -> None:
    pair = Pair(spark, tmp_path, format)
    pair.add([(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (None, b"no key"), (b"c", b"1")])
    pair.add([(b"b", None), (b"z", None), (b"", b"empty key")])
    pair.add([(b"a", b"of another partition")], partition=1)
    first = pair.refresh()
    assert (first.rows, first.files_read, first.files_written) == (4, 3, 2)
    pair.check()
    assert pair.target.state().progress == pair.source.state().progress

    pair.add([(b"b", b"again"), (b"c", None)])
    second = pair.refresh()
    assert (second.offsets, second.files_read, second.files_written) == (2, 1, 1)
    pair.check()
    assert pair.refresh() == LatestReport(offsets=0, files_read=0, files_written=0, rows=second.rows)


def test_a_key_that_is_deleted_last_leaves_an_empty_table(
    spark: SparkSession, tmp_path: Path, format: Format
) -> None:
    pair = Pair(spark, tmp_path, format)
    pair.add([(b"a", b"1")])
    pair.refresh()
    pair.add([(b"a", None)])
    assert pair.refresh().rows == 0
    assert pair.target.files() == []
    pair.add([(b"a", b"2")])
    assert pair.refresh().rows == 1
    pair.check()


def test_any_history_in_any_steps_and_buckets(spark: SparkSession, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    choice = random.Random(seed)
    pair = Pair(spark, tmp_path, Format.PARQUET)
    for _ in range(5):
        for partition in range(2):
            records: list[Record] = []
            for _ in range(choice.randrange(1, 400)):
                key = b"k%d" % choice.randrange(300)
                records.append((key, None if choice.random() < 0.2 else b"v%d" % choice.randrange(10**9)))
            pair.add(records, partition=partition)
        if choice.random() < 0.3:
            compact(spark, pair.source.table, pair.source.store)
        # So small that buckets are many, and become more.
        pair.refresh(bucket_bytes=choice.choice([1 << 25, 4096, 1024]))
        pair.check()


def test_buckets_become_more_with_the_table(spark: SparkSession, tmp_path: Path) -> None:
    pair = Pair(spark, tmp_path, Format.PARQUET)
    pair.add([(b"k%d" % number, b"v" * 20) for number in range(50)])
    pair.refresh(bucket_bytes=1 << 20)
    assert bucket_counts(pair) == {1}
    pair.add([(b"k%d" % number, random.randbytes(100)) for number in range(40, 2000)])
    pair.refresh(bucket_bytes=8192)
    (count,) = bucket_counts(pair)
    assert count >= 8
    assert len(pair.target.files()) == count, "keys are spread over all of them"
    pair.check()
    # Then a single new key touches a single bucket.
    pair.add([(b"k7", b"new")])
    assert pair.refresh(bucket_bytes=1 << 20).files_written == 1
    pair.check()


def bucket_counts(pair: Pair) -> set[int]:
    found = set()
    for one in pair.target.files():
        with pair.target.store.open(one.path) as file:
            found.add(int(pq.read_metadata(file).metadata[BUCKET.encode()].split(b"/")[1]))
    return found


def test_a_compacted_file_across_the_progress_is_read_from_there(spark: SparkSession, tmp_path: Path) -> None:
    pair = Pair(spark, tmp_path, Format.PARQUET)
    pair.add([(b"a", b"1"), (b"b", b"1")])
    pair.refresh()
    pair.add([(b"a", None), (b"c", b"1")])
    compact(spark, pair.source.table, pair.source.store)
    assert len(pair.source.files()) == 1
    pair.refresh()
    pair.check()


def test_shaped_rows_are_deleted_by_nothing_but_nulls(spark: SparkSession, tmp_path: Path) -> None:
    source, target = (
        TableLocation(tmp_path, Format.PARQUET),
        TableLocation(tmp_path, Format.PARQUET, TOPIC + SUFFIX),
    )
    schema = pa.schema(
        [*(RAW.field(name) for name in ("partition", "offset", "timestamp", "key")), ("n", pa.int64())]
    )
    state = source.table.create(schema)
    rows = pa.table(
        [
            pa.array([0] * 4, pa.int32()),
            pa.array(range(4), pa.int64()),
            pa.array([DAY] * 4, pa.timestamp("us", "UTC")),
            pa.array([b"a", b"b", b"a", b"b"], pa.binary()),
            pa.array([1, 2, None, 0], pa.int64()),
        ],
        schema=schema,
    )
    source.add(state, [source.write(state, rows, 0, 4)], at=4)
    latest(spark, source.table, source.store, target.table, target.store)
    assert [(row["key"], row["n"]) for row in target.rows().to_pylist()] == [(b"b", 0)]


def test_new_columns_reach_the_table(spark: SparkSession, tmp_path: Path, format: Format) -> None:
    pair = Pair(spark, tmp_path, format)
    pair.add([(b"a", b"1"), (b"b", b"1")])
    pair.refresh()
    state = pair.source.state()
    wanted = RAW.append(pa.field("extra", pa.string()))
    rows = raw_rows([(b"a", b"2")], 2, 0).append_column("extra", pa.array(["x"]))
    schema = pair.source.table.evolved(state, wanted)
    file = pair.source.write(TableState(version="", schema=schema), rows, 2, 3)
    progress = {TOPIC: TopicProgress(TOPIC_ID, {0: 3})}
    pair.source.table.commit(TableChange(base=state, added=[file], schema=wanted, progress=progress))
    pair.refresh()
    found = pair.target.rows().to_pylist()
    assert [(row["key"], row["value"], row["extra"]) for row in found] == [
        (b"b", b"1", None),
        (b"a", b"2", "x"),
    ]


def test_of_two_at_once_the_later_begins_anew(
    spark: SparkSession, tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, other = Pair(spark, tmp_path, format), Pair(spark, tmp_path, format)
    pair.add([(b"a", b"1"), (b"b", b"1")])
    pair.refresh()
    pair.add([(b"a", b"2")])
    real, calls = pair.target.table.commit, []

    def late_commit(change: TableChange) -> TableState:
        calls.append(change)
        if len(calls) == 1:
            other.refresh()
        return real(change)

    monkeypatch.setattr(pair.target.table, "commit", late_commit)
    assert pair.refresh().offsets == 0
    pair.check()


def test_another_topic_of_the_name_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    pair = Pair(spark, tmp_path, Format.PARQUET)
    pair.add([(b"a", b"1")])
    pair.refresh()
    state = pair.source.state()
    pair.source.table.commit(TableChange(base=state, progress={TOPIC: TopicProgress("ff" * 16, {0: 5})}))
    with pytest.raises(TableError, match="another topic of the name"):
        pair.refresh()


def test_it_is_not_for_compaction(spark: SparkSession, tmp_path: Path) -> None:
    pair = Pair(spark, tmp_path, Format.PARQUET)
    pair.add([(b"a", b"1")])
    pair.refresh()
    with pytest.raises(TableError, match="nothing to merge"):
        compact(spark, pair.target.table, pair.target.store)
