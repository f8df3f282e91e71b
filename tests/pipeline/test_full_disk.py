"""A disk that is full under a sink ends the run with what to see to; with more room the next run goes on."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.lake.tables.factory import open_table_at
from flintmq.pipeline.runtime.runner import PipelineFailed
from support.pipeline.pipelines import Flow, as_records, rows_of_table
from support.spark.spark_topics import Topics

_DISK_BYTES = 2 << 20
_RECORD_BYTES = 400_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, and a small one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "flintmq-test", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("toolchain: mount, which a small disk is made with")
    if done.returncode:
        pytest.skip(f"toolchain: a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.long
def test_a_full_disk_ends_the_run_and_room_lets_it_go_on(
    flow: Flow, topics: Topics, topic: str, disk: Path
) -> None:
    topics.create(topic)
    count = 2 * _DISK_BYTES // _RECORD_BYTES
    for number in range(count):
        text = base64.b64encode(os.urandom(_RECORD_BYTES)).decode()
        topics.write(topic, as_records([{"id": number, "text": text}]))
    flow.write(
        f"""
        name: {topic}
        sources:
          orders: {{topic: {topic}, decode: {{format: json, schema: "id long, text string"}}}}
        sinks:
          table: {{from: orders, table: disk/table}}
        """
    )
    with pytest.raises(PipelineFailed, match=r"the sink `table` .* No space left on device"):
        flow.run()
    opened = open_table_at(str(disk / "table"), "parquet", {})
    assert rows_of_table(opened) == []
    subprocess.run(["mount", "-o", f"remount,size={8 * _DISK_BYTES}", str(disk)], check=True)
    flow.run()
    opened = open_table_at(str(disk / "table"), "parquet", {})
    assert sorted(row["id"] for row in rows_of_table(opened)) == list(range(count))
