"""Tables of all formats whose last sync was killed after the table's commit, before bad records were in their topic.

    make("lake")

Tables are in an S3 store, whose addresses do not depend on the machine: `s3://lake/FORMAT`. The archive holds
the broker's data directory, the objects of the bucket, and the Iceberg catalog.

    python stored_lake.py ADDRESS ENDPOINT FORMAT CATALOG       the sync that is killed
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store

from support.broker.broker_process import BrokerProcess
from support.lake.s3_server import BUCKET, S3Server
from support.spark.spark_topics import TIME_MS, Topics
from support.upgrade.archives import pack, write_expected

FORMATS = ("parquet", "delta", "iceberg")
ROUND = 12
"""Records written to each partition before each sync; the last of them cannot be decoded."""
_PATIENCE_S = 180.0


def options(format: str) -> dict[str, Any]:
    """Of every sync."""
    return {
        "format": format,
        "decode": "json",
        "schema": "id long, name string",
        "quarantine": f"topic:{quarantine(format)}",
    }


def topic(format: str) -> str:
    """Each table has a topic of its own: in the version that wrote them, tables of one topic shared the group that
    remembers what is quarantined."""
    return f"orders.{format}"


def quarantine(format: str) -> str:
    return f"orders.{format}.bad"


def root(format: str) -> str:
    return f"s3://{BUCKET}/{format}"


def catalog(format: str, file: Path) -> str | None:
    return f"sqlite:///{file}" if format == "iceberg" else None


def write_round(topics: Topics, topic: str, number: int) -> None:
    for partition in range(2):
        first = number * ROUND
        records = [
            (b"k%d" % one, b'{"id": %d, "name": "n%d"}' % (one, one), TIME_MS + one * 1000, (("h", b"1"),))
            for one in range(first, first + ROUND - 1)
        ]
        bad = (b"bad", b"bad %d" % number, TIME_MS, (("h", b"2"),))
        topics.write(topic, [*records, bad], partition=partition)


def make(name: str) -> None:
    with tempfile.TemporaryDirectory() as made, S3Server() as s3:
        directory = Path(made)
        args = ["--set", "offsets.topic.num.partitions=3"]
        with BrokerProcess(directory / "data", args) as broker, Topics(broker.address) as topics:
            for format in FORMATS:
                topics.create(topic(format), partitions=2)
                topics.create(quarantine(format))
                for number in range(2):
                    write_round(topics, topic(format), number)
                    _sync(broker.address, s3, format, directory, kills=number == 1)
        stopped_ms = time.time_ns() // 1_000_000
        save_bucket(s3, directory / "bucket")
        pack(name, directory, "data", "bucket", "catalog.db")
    write_expected(name, {"stopped_ms": stopped_ms})


def _sync(address: str, s3: S3Server, format: str, directory: Path, *, kills: bool) -> None:
    arguments = [address, s3.endpoint, format, str(directory / "catalog.db"), "1" if kills else "0"]
    path = os.pathsep.join(one for one in sys.path if one)
    program = subprocess.Popen(
        [sys.executable, __file__, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    try:
        assert program.wait(_PATIENCE_S) == (-signal.SIGKILL if kills else 0)
    finally:
        # Java and the workers, too.
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)


def open_bucket(s3: S3Server) -> S3Store:
    return S3Store(
        BUCKET,
        endpoint=s3.endpoint,
        access_key_id="test",
        secret_access_key="test",
        region="us-east-1",
        client_options={"allow_http": True},
    )


def save_bucket(s3: S3Server, directory: Path) -> None:
    store = open_bucket(s3)
    for page in obstore.list(store):
        for one in page:
            file = directory / one["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(obstore.get(store, one["path"]).bytes())


def restore_bucket(s3: S3Server, directory: Path) -> None:
    store = open_bucket(s3)
    for file in sorted(directory.rglob("*")):
        if file.is_file():
            obstore.put(store, str(file.relative_to(directory)), file.read_bytes())


def main(address: str, endpoint: str, format: str, file: str, kills: str) -> None:
    from flintmq.lake.syncing.quarantine_topic import TopicQuarantine
    from flintmq.spark.session import session
    from support.lake.synced_lake import Lake

    if kills == "1":
        complete = TopicQuarantine.complete

        def die(self: TopicQuarantine, pending: Any) -> None:
            # The table still names the files of its previous commit when a sync begins.
            if pending.progress.next_offsets[0] > ROUND:
                os.kill(os.getpid(), signal.SIGKILL)
            complete(self, pending)

        TopicQuarantine.complete = die  # type: ignore[method-assign]
    spark = session({"spark.driver.memory": "1g", "spark.log.level": "ERROR"}, master="local[2]")
    settings = {
        "endpoint": endpoint,
        "access_key_id": "test",
        "secret_access_key": "test",
        "region": "us-east-1",
        "allow_http": "true",
    }
    lake = Lake(spark, address, root(format), settings=settings, catalog=catalog(format, Path(file)))
    lake.sync(topic(format), **options(format))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
