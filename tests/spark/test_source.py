"""`spark.read.format("flintmq")` in a real session: rows equal what was produced, filters and errors reach where they
should. What each option does is in test_spark_source_direct.py."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from flintmq.records.compression import Codec
from flintmq.records.record import NewRecord
from flintmq.spark import PUSH_FILTERS
from support.broker.broker_process import BrokerProcess
from support.spark.spark_topics import TIME_MS, Topics, numbered

# Python workers and a JVM take their time on a busy machine.
pytestmark = pytest.mark.timeout(300)

ALL = "key,value,topic,partition,offset,timestamp,timestampType,headers"


def rows(frame: Any) -> list[tuple[Any, ...]]:
    """In the order of the log, in Python's own types."""
    found = frame.orderBy("topic", "partition", "offset").collect()
    return [tuple(_plain(one) for one in row) for row in found]


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [(header["key"], _plain(header["value"])) for header in value]
    return value


def moment(number: int) -> datetime:
    return datetime.fromtimestamp(TIME_MS / 1000 + number, UTC).replace(tzinfo=None)


def test_rows_equal_what_was_produced(reading: Any, topics: Topics, topic: str) -> None:
    topics.create(topic, partitions=2)
    headers = (("a", b"1"), ("b", None), ("a", b""))
    records: list[NewRecord] = [
        (b"k", b"v", TIME_MS, headers),
        (None, None, TIME_MS + 1000, ()),
        (b"", b"", TIME_MS, ()),
    ]
    for codec in Codec:
        topics.write(topic, records, codec=codec)
    large = b"x" * 1_000_000
    topics.write(topic, [(b"large", large, TIME_MS, ())], partition=1)
    expected: list[tuple[Any, ...]] = []
    for first in range(0, 3 * len(Codec), 3):
        expected += [
            (b"k", b"v", topic, 0, first, moment(0), 0, list(headers)),
            (None, None, topic, 0, first + 1, moment(1), 0, None),
            (b"", b"", topic, 0, first + 2, moment(0), 0, None),
        ]
    expected.append((b"large", large, topic, 1, 0, moment(0), 0, None))
    assert rows(reading(topic, columns=ALL, minPartitions=4)) == expected


def test_filters_prune_what_is_read_and_change_no_result(
    spark: Any, reading: Any, topics: Topics, topic: str
) -> None:
    topics.create(topic, partitions=4)
    for partition in range(4):
        topics.write(topic, numbered(0, 20), partition=partition)
    late = f"timestamp >= timestamp_millis({TIME_MS + 12_000})"
    condition = f"partition in (1, 2) and offset < 15 and {late} and cast(value as string) != 'v13'"
    pushed = reading(topic).filter(condition)
    assert pushed.rdd.getNumPartitions() == 2
    found = rows(pushed)
    assert [(row[3], row[4]) for row in found] == [(1, 12), (1, 14), (2, 12), (2, 14)]
    spark.conf.set(PUSH_FILTERS, "false")
    try:
        unpushed = reading(topic).filter(condition)
        assert unpushed.rdd.getNumPartitions() == 4
        assert rows(unpushed) == found
    finally:
        spark.conf.set(PUSH_FILTERS, "true")


def test_an_empty_topic_has_no_rows_and_all_columns(reading: Any, topics: Topics, topic: str) -> None:
    topics.create(topic)
    frame = reading(topic, includeHeaders="true")
    assert frame.columns == ALL.split(",")
    assert frame.collect() == []


def test_a_wrong_option_is_refused_when_the_frame_is_made(reading: Any) -> None:
    with pytest.raises(Exception, match="there is no option startingofset; did you mean startingOffsets"):
        reading("t", startingOfset="earliest")


def test_lost_records_are_named_in_the_querys_error(reading: Any, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, numbered(0, 10))
    topics.delete_before(topic, 4)
    frame = reading(topic, startingOffsets=f'{{"{topic}": {{"0": 1}}}}')
    with pytest.raises(Exception, match=f"{topic}-0, offsets 1 to 3 are deleted.*failOnDataLoss"):
        frame.collect()


_UNREGISTERED = """
import sys
from flintmq.spark.session import session
spark = session({"spark.driver.memory": "1g"}, master="local[1]")
frame = spark.read.format("flintmq").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", sys.argv[2])
print("rows", frame.load().filter("offset > 3").count())
"""


@pytest.mark.long
def test_spark_finds_the_format_by_itself(
    broker: BrokerProcess, topics: Topics, topic: str, spark: Any
) -> None:
    """`spark` is asked for only because it sets the path on which workers find this package."""
    topics.create(topic)
    topics.write(topic, numbered(0, 10))
    done = subprocess.run(
        [sys.executable, "-c", _UNREGISTERED, broker.address, topic],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.stdout.splitlines()[-1:] == ["rows 6"], done.stderr
