"""Tables that a sync of version 0.1.0 left with a pending quarantine: the next sync completes it, exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.lake.audit.audit import audit
from flintmq.lake.syncing.options import make_options
from support.lake.synced_lake import Lake, Rows, topic_rows
from support.pipeline.pipelines import records_of
from support.spark.spark_topics import Topics
from support.upgrade.archives import expected, unpack
from support.upgrade.past_broker import PastBroker
from support.upgrade.stored_lake import (
    FORMATS,
    ROUND,
    catalog,
    options,
    quarantine,
    restore_bucket,
    root,
    topic,
    write_round,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.lake.s3_server import S3Server


ORIGIN = ("topic", "partition", "offset", "timestamp", "error")
"""The headers of a quarantined record, after `flintmq.lake.`."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, s3: S3Server) -> Path:
    unpacked = unpack("lake", tmp_path_factory.mktemp("lake"))
    restore_bucket(s3, unpacked / "bucket")
    return unpacked


@pytest.fixture(scope="module")
def broker(directory: Path) -> Iterator[PastBroker]:
    started = PastBroker(directory / "data", expected("lake")["stopped_ms"])
    with started:
        yield started


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_sync_completes_the_quarantine_and_continues(
    spark: SparkSession, broker: PastBroker, s3: S3Server, directory: Path, format: str
) -> None:
    file = catalog(format, directory / "catalog.db")
    lake = Lake(spark, broker.address, root(format), settings=s3.settings, catalog=file)
    name = topic(format)

    def quarantined() -> list[tuple[int, int, bytes | None]]:
        """Where the quarantined records come from, as their headers say."""
        found = []
        for one in records_of(broker.address, quarantine(format)):
            about = {key: one.headers[f"flintmq.lake.{key}"] or b"" for key in ORIGIN}
            assert about["topic"] == name.encode()
            assert about["error"]
            found.append((int(about["partition"]), int(about["offset"]), one.value))
        return sorted(found)

    def stored() -> tuple[Rows, list[tuple[int, int, bytes | None]]]:
        """The records of the topic: those that can be decoded, and the others."""
        rows = topic_rows(broker.address, name)
        bad = [row for row in rows if row["value"].startswith(b"bad")]
        return (
            [row for row in rows if not row["value"].startswith(b"bad")],
            [(row["partition"], row["offset"], row["value"]) for row in bad],
        )

    assert [offset for _, offset, _ in quarantined()] == [ROUND - 1] * 2, (
        "one round is quarantined, one pending"
    )
    assert len(lake.rows(name, format)) == len(stored()[0]) == 4 * (ROUND - 1)
    with Topics(broker.address) as topics:
        write_round(topics, name, 2)
    for commits in (1, 0):
        assert len(lake.sync(name, **options(format)).commits) == commits
        good, bad = stored()
        rows = lake.rows(name, format)
        assert [(one["partition"], one["offset"], b"k%d" % one["id"]) for one in rows] == [
            (one["partition"], one["offset"], one["key"]) for one in good
        ]
        assert quarantined() == bad
    _check_audit(lake, name, format)


def _check_audit(lake: Lake, name: str, format: str) -> None:
    asked: dict[str, Any] = {"to": lake.root, "format": format, "bootstrap_servers": lake.address}
    made = make_options([name], store=lake.settings, catalog=lake.catalog, **asked)
    (found,) = audit(lake.spark, made)
    assert found.is_good, found.problems
    assert found.compared == 6 * (ROUND - 1)
