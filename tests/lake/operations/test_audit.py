"""An audit finds what is wrong, names it, and finds nothing where nothing is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

import pyarrow as pa
import pyarrow.parquet as pq

from flintmq.client.admin.maintenance import maintain_topic
from flintmq.lake.audit.audit import audit
from flintmq.lake.audit.report import AuditProblemKind, TableAudit
from flintmq.lake.syncing.options import make_options
from flintmq.lake.tables.table import TableChange, TableError
from flintmq.protocol.maintenance import MaintenanceAction
from support.broker.broker_process import BrokerProcess
from support.lake.synced_lake import FORMATS, Lake
from support.spark.spark_topics import TIME_MS, Topics, numbered
from support.wire.mixed_topic import Writer, write_mixture

WITHOUT_SPARK = True


def audited(lake: Lake, topic: str, format: str = "parquet", **more: Any) -> TableAudit:
    options = make_options(
        [topic],
        to=lake.root,
        format=format,
        bootstrap_servers=lake.address,
        store=lake.settings,
        catalog=lake.catalog,
    )
    (found,) = audit(lake.spark, options, **more)
    return found


def told(found: TableAudit) -> list[tuple[AuditProblemKind, int, int, str | None]]:
    return [(one.kind, one.start, one.end, one.column) for one in found.problems]


@pytest.fixture(scope="module")
def mixture(broker: BrokerProcess) -> str:
    """Every codec, nulls, headers, 1 MB records, gaps, transactions that were committed, aborted, and one open."""
    unfinished = Writer(broker.address, transactional=True)
    write_mixture(broker.address, "audited-mixture", unfinished)
    return "audited-mixture"


@pytest.mark.parametrize("format", FORMATS)
def test_a_table_that_has_all_is_good_whatever_the_topic_holds(lake: Lake, mixture: str, format: str) -> None:
    lake.sync(mixture, format=format, piece_bytes=100_000)
    found = audited(lake, mixture, format)
    assert found.is_good, found.problems
    assert found.compared == len(lake.rows(mixture, format))
    assert found.files == len(lake.paths(mixture, format))


def test_a_partitioned_table_is_compared_too(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic, partitions=2)
    day_ms = 86_400_000
    for partition in range(2):
        records = [(b"k", b"v%d" % at, TIME_MS + at % 7 * day_ms // 2, ()) for at in range(100)]
        topics.write(topic, records, partition=partition)
    lake.sync(topic, partition_by=["timestamp:day"])
    topics.write(topic, numbered(0, 10))
    lake.sync(topic)
    found = audited(lake, topic)
    assert found.is_good, found.problems
    assert found.compared == 210


def rewritten(lake: Lake, topic: str, change: Callable[[pa.Table], pa.Table], at: int = 0) -> str:
    """A file of the table, with other rows, as if somebody had meddled with it."""
    path = lake.paths(topic)[at]
    name = os.path.join(lake.root, topic, path)
    table = pq.read_table(name)
    os.remove(name)
    pq.write_table(change(table), name)
    return path


def with_byte_flipped(table: pa.Table, row: int, column: str) -> pa.Table:
    values = table.column(column).to_pylist()
    values[row] = bytes([values[row][0] ^ 1]) + values[row][1:]
    at = table.schema.get_field_index(column)
    return table.set_column(at, table.schema.field(at), pa.array(values, pa.binary()))


@pytest.fixture
def synced(lake: Lake, topics: Topics, topic: str) -> Lake:
    """A table of 100 rows, in files of 50."""
    topics.create(topic, configs={"segment.bytes": "1200"})
    for first in (0, 50):
        topics.write(topic, numbered(first, 50))
    lake.sync(topic, piece_bytes=1200)
    assert len(lake.paths(topic)) == 2
    return lake


def test_a_flipped_byte_is_found_and_named(synced: Lake, topic: str) -> None:
    path = rewritten(synced, topic, lambda table: with_byte_flipped(table, 7, "value"))
    found = audited(synced, topic)
    (problem,) = found.problems
    assert (problem.kind, problem.topic, problem.partition) == (AuditProblemKind.CHANGED, topic, 0)
    assert (problem.start, problem.end, problem.column, problem.files) == (7, 8, "value", (path,))
    assert str(problem) == f"{topic}-0, offset 7: value changed in {path}"
    assert found.compared == 100


def test_rows_that_are_missing_doubled_or_foreign_are_told_apart(synced: Lake, topic: str) -> None:
    def meddle(table: pa.Table) -> pa.Table:
        stranger = table.slice(49, 1).set_column(
            table.schema.get_field_index("offset"), table.schema.field("offset"), pa.array([1000], pa.int64())
        )
        return pa.concat_tables(
            [table.slice(0, 10), table.slice(20, 5), table.slice(24, 1), table.slice(25), stranger]
        )

    rewritten(synced, topic, meddle, at=1)
    found = audited(synced, topic)
    assert told(found) == [
        (AuditProblemKind.MISSING, 60, 70, None),
        (AuditProblemKind.DOUBLED, 74, 75, None),
        (AuditProblemKind.FOREIGN, 1000, 1001, None),
    ]


def test_rows_appended_behind_their_place_are_doubled(synced: Lake, topic: str) -> None:
    rewritten(synced, topic, lambda table: pa.concat_tables([table, table.slice(3, 2)]))
    found = audited(synced, topic)
    assert (AuditProblemKind.DOUBLED, 3, 5, None) in told(found)
    assert AuditProblemKind.MISPLACED in {one.kind for one in found.problems}


def test_rows_of_another_topic_or_partition_are_found(synced: Lake, topic: str) -> None:
    def meddle(table: pa.Table) -> pa.Table:
        names, partitions = [topic] * 50, [0] * 50
        names[4], partitions[5] = "other", 3
        for name, values, kind in (("topic", names, pa.string()), ("partition", partitions, pa.int32())):
            at = table.schema.get_field_index(name)
            table = table.set_column(at, table.schema.field(at), pa.array(values, kind))
        return table

    rewritten(synced, topic, meddle)
    assert told(audited(synced, topic)) == [
        (AuditProblemKind.CHANGED, 4, 5, "topic"),
        (AuditProblemKind.CHANGED, 5, 6, "partition"),
    ]


def test_a_file_that_is_gone_or_damaged_is_named(synced: Lake, topic: str) -> None:
    first, second = synced.paths(topic)
    os.remove(os.path.join(synced.root, topic, first))
    damaged = os.path.join(synced.root, topic, second)
    data = bytearray(Path(damaged).read_bytes())
    data[4:200] = bytes(196)
    os.remove(damaged)
    Path(damaged).write_bytes(data)
    found = audited(synced, topic)
    assert {(one.kind, one.files) for one in found.problems} == {
        (AuditProblemKind.UNREADABLE, (first,)),
        (AuditProblemKind.UNREADABLE, (second,)),
    }


def test_a_file_that_was_taken_out_of_the_table_leaves_missing_rows(synced: Lake, topic: str) -> None:
    table = synced.table(topic)
    state = synced.state(topic)
    gone = next(one for one in table.files(state) if one.start_offset == 50)
    table.commit(TableChange(base=state, removed=[gone]))
    assert told(audited(synced, topic)) == [(AuditProblemKind.MISSING, 50, 100, None)]


def test_what_retention_took_is_checked_within_the_table_and_said(
    synced: Lake, topics: Topics, topic: str
) -> None:
    topics.delete_before(topic, 30)
    found = audited(synced, topic)
    assert found.is_good
    assert (found.compared, found.only_in_lake) == (70, 30)
    rewritten(synced, topic, lambda table: pa.concat_tables([table.slice(0, 11), table.slice(10)]))
    assert told(audited(synced, topic)) == [(AuditProblemKind.DOUBLED, 10, 11, None)]


def test_what_is_not_synced_yet_is_no_problem(synced: Lake, topics: Topics, topic: str) -> None:
    topics.write(topic, numbered(100, 5))
    found = audited(synced, topic)
    assert found.is_good
    assert (found.compared, found.not_yet) == (100, 5)


def test_decoded_rows_are_decoded_again_and_poison_is_looked_for(
    lake: Lake, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    records: list[Any] = [
        (b"k", json.dumps({"id": at, "tags": ["a", None], "price": at / 7}).encode(), TIME_MS, ())
        for at in range(20)
    ]
    records[5] = (b"bad", b"{", TIME_MS, (("h", b"1"),))
    records[6] = (b"k", None, TIME_MS, ())
    topics.write(topic, records)
    options = {"decode": "json", "schema": "id int, tags array<string>"}
    lake.sync(topic, **options)
    topics.write(topic, [(b"k", b'{"id": 20, "price": 2.5}', TIME_MS, ()), (b"bad", b"}", TIME_MS, ())])
    lake.sync(topic, decode="json", schema="id long, tags array<string>, price double")
    found = audited(lake, topic)
    assert found.is_good, found.problems
    assert (found.compared, found.undecodable) == (22, 0)
    rewritten(lake, topic, lambda table: table.set_column(4, "id", pa.array([*range(18), 7], pa.int32())))
    wrong = told(audited(lake, topic))
    assert all(one[0] is AuditProblemKind.CHANGED and one[3] == "id" for one in wrong)
    assert wrong[-1][2] == 20
    quarantine = f"{topic}__quarantine"
    rewritten(lake, quarantine, lambda table: with_byte_flipped(table, 0, "key"))
    assert (AuditProblemKind.CHANGED, 5, 6, "key") in told(audited(lake, topic))
    rewritten(lake, quarantine, lambda table: table.slice(0, 0))
    assert (AuditProblemKind.MISSING, 5, 6, "error") in told(audited(lake, topic))


def test_a_compacted_topic_may_lack_what_the_table_has(lake: Lake, topics: Topics, topic: str) -> None:
    settings = {"cleanup.policy": "compact", "segment.bytes": "1500", "min.cleanable.dirty.ratio": "0.01"}
    topics.create(topic, configs=settings)
    for _ in range(3):
        topics.write(topic, [(b"k%d" % at, b"v" * 50, TIME_MS, ()) for at in range(20)])
    lake.sync(topic)
    maintain_topic(topics.client, topic, MaintenanceAction.COMPACT)
    found = audited(lake, topic)
    assert found.is_good
    assert found.compared + found.compacted == 60
    assert found.compacted > 0


def test_a_topic_that_is_another_one_is_not_compared(synced: Lake, topics: Topics, topic: str) -> None:
    topics.delete(topic)
    topics.create(topic)
    with pytest.raises(TableError, match="made again"):
        audited(synced, topic)
    with pytest.raises(TableError, match="no parquet table"):
        audited(synced, topics.create(f"{topic}-other"))


def test_an_empty_topic_agrees_with_its_table(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic, partitions=3)
    lake.sync(topic)
    assert audited(lake, topic).is_good
