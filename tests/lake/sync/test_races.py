"""Two `flintmq lake sync` that follow the same topic to the same table: what both want to commit, one does.

Fresh records are written until the two have really met, which their figures tell.
"""

from __future__ import annotations

import json
import queue
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.lake.syncing.synced_table import PreparedTable
from flintmq.metrics.exposition import parse
from support.broker.broker_process import BrokerProcess
from support.lake.sync_process import START_TIMEOUT_S, LakeProcess
from support.lake.synced_lake import FORMATS, Lake, topic_rows
from support.spark.spark_topics import Topics, numbered

WITHOUT_SPARK = True

ROUNDS_MAX = 100
PARTITIONS = 2
NAMES = ("one", "other")

Lines = queue.Queue[str | None]

pytestmark = pytest.mark.timeout(600)


@pytest.mark.long
@pytest.mark.parametrize("format", FORMATS)
def test_of_two_processes_one_wins_each_time_and_nothing_is_twice(
    lake: Lake, broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path, format: str
) -> None:
    topics.create(topic, partitions=PARTITIONS)
    for name in NAMES:
        # Each has a topic of its own beside the common one, and tells by it that it runs.
        topics.create(f"{topic}-{name}")
        topics.write(f"{topic}-{name}", numbered(0, 1))
    lines: Lines = queue.Queue()
    figures = [tmp_path / f"{name}.prom" for name in NAMES]
    with ExitStack() as running:
        syncs = []
        for name, file in zip(NAMES, figures, strict=True):
            arguments = ["sync", topic, f"{topic}-{name}", "--to", lake.root, "--format", format]
            arguments += ["-b", broker.address, "--interval", "300ms", "--metrics-file", str(file), "--json"]
            sync = LakeProcess(arguments, file.with_suffix(".log"), lines=lines)
            syncs.append(running.enter_context(sync))
        assert {told(lines)["topic"] for _ in NAMES} == {f"{topic}-{name}" for name in NAMES}
        written = written_until_they_met(topics, topic, lines, figures)
        for sync in syncs:
            sync.terminate()
        for sync in syncs:
            sync.wait()
            assert "Traceback" not in sync.errors
    rows = lake.rows(topic, format)
    assert len(rows) == written
    assert rows == topic_rows(broker.address, topic)
    committed = [parse(one.read_text()).total("flintmq_lake_rows_total", topic=topic) for one in figures]
    assert sum(committed) == written


def test_who_loses_is_done_when_the_other_came_as_far_as_it_wanted(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would lose again and again, for as long as records arrive."""
    topics.create(topic)
    topics.write(topic, numbered(0, 10))
    commit = PreparedTable.commit

    def too_late(self: PreparedTable, *args: Any) -> None:
        monkeypatch.setattr(PreparedTable, "commit", commit)
        lake.sync(topic)
        topics.write(topic, numbered(10, 10))
        commit(self, *args)

    monkeypatch.setattr(PreparedTable, "commit", too_late)
    with lake.open(topic) as sync:
        assert sync.run().commits == []
        assert parse(sync.metrics.text()).total("flintmq_lake_conflicts_total") == 1
        assert len(lake.rows(topic)) == 10
        assert sync.run().rows == 10
    assert [row["offset"] for row in lake.rows(topic)] == list(range(20))


def told(lines: Lines) -> dict[str, object]:
    line = lines.get(timeout=START_TIMEOUT_S)
    assert line is not None, "one of them has ended"
    found: dict[str, object] = json.loads(line)
    return found


def written_until_they_met(topics: Topics, topic: str, lines: Lines, figures: list[Path]) -> int:
    """How many records it took, a few at a time."""
    written = committed = 0
    for _ in range(ROUNDS_MAX):
        for partition in range(PARTITIONS):
            topics.write(topic, numbered(written, 10), partition=partition)
            written += 10
        while committed < written:
            rows = told(lines)["rows"]
            assert isinstance(rows, int)
            committed += rows
        assert committed == written, "something was committed twice"
        if any(conflicts(one, topic) for one in figures):
            return written
    raise AssertionError(f"the two have not met in {ROUNDS_MAX} rounds")


def conflicts(figures: Path, topic: str) -> float:
    """A sync writes them when it is done, which may be after its commit was heard of."""
    if not figures.exists():
        return 0
    return parse(figures.read_text()).total("flintmq_lake_conflicts_total", topic=topic)
