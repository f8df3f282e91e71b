"""Who ends in the middle of `lake compact` or `lake latest`: rows are right all the time, and rubbish is cleaned."""

from __future__ import annotations

import os
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.lake.clean import clean
from flintmq.lake.compact.compact import compact
from flintmq.lake.tables.table import Format
from support.lake import operation_program
from support.lake.operation_program import WORKER_STEPS, driver_steps
from support.lake.table_location import TableLocation, next_offset
from support.lake.table_pairs import Pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHOUT_SPARK = True

RUN_TIMEOUT_S = 180.0

FORMATS = [Format.PARQUET, Format.ICEBERG, pytest.param(Format.DELTA, marks=pytest.mark.long)]
"""In this process; Delta commits by the same log as plain tables."""

Run = Callable[[str, str], None]
"""An operation that ends at a step."""


class Killed(BaseException):
    """Nothing in the product catches it, as nothing catches a kill."""


def here(format: Format, work: Callable[[], object], patch: pytest.MonkeyPatch) -> Run:
    """In this process: nothing catches `Killed`, and so nothing is said or made good on the way."""

    def run(operation: str, step: str) -> None:
        path, is_after = driver_steps(operation, format)[step]
        function = pkgutil.resolve_name(path)

        def die(*args: Any, **options: Any) -> Any:
            if is_after:
                function(*args, **options)
            raise Killed

        with patch.context() as patched:
            patched.setattr(path.replace(":", "."), die)
            with pytest.raises(Killed):
                work()

    return run


def killed(root: Path, format: Format) -> Run:
    """In a process of its own, by `kill -9`."""

    def run(operation: str, step: str) -> None:
        path = os.pathsep.join(one for one in sys.path if one)
        log = root.with_suffix(f".{operation}-{step}.log")
        command = [sys.executable, operation_program.__file__, operation, str(root), format, step]
        with log.open("wb") as errors:
            program = subprocess.Popen(
                command,
                stdout=errors,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
            try:
                code = program.wait(RUN_TIMEOUT_S)
            finally:
                # The JVM, and what workers are left: as if the machine had gone down.
                os.killpg(program.pid, signal.SIGKILL)
        expected = -signal.SIGKILL if step in driver_steps(operation, format) else 0
        assert code == expected, (step, log.read_text(errors="replace")[-4000:])

    return run


def check_rows(place: TableLocation) -> None:
    found = sorted((row["partition"], row["offset"], row["value"]) for row in place.rows().to_pylist())
    assert found == [
        (partition, offset, b"v%d" % offset)
        for partition in range(2)
        for offset in range(next_offset(place.state(), partition))
    ]


def check_cleaned(place: TableLocation) -> None:
    """As if an hour had passed: only what counts stays."""
    clean(place.table, place.store, keep_ms=-3_600_000)
    assert place.paths_in_store() == {one.path for one in place.files()}
    assert place.store.abandoned_drafts() == []
    assert clean(place.table, place.store, keep_ms=-3_600_000) == []


def compact_through(steps: list[str], place: TableLocation, run: Run) -> None:
    for step in steps:
        # There is something to merge again, whatever became of the last attempt.
        place.fill([3])
        place.fill([2], partition=1)
        run("compact", step)
        check_rows(place)


def latest_through(steps: list[str], pair: Pair, run: Run) -> None:
    for number, step in enumerate(steps):
        for partition in range(2):
            same = [(b"same", b"%d" % number), (b"gone", b"x"), (b"k%d" % number, b"y")]
            pair.add([*same, (b"gone", None), (b"k%d" % (number - 1), None)], partition=partition)
        run("latest", step)


@pytest.mark.parametrize("format", FORMATS)
def test_a_compaction_that_ends_at_any_step_changes_no_row(
    spark: SparkSession, tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TableLocation(tmp_path, format)
    run = here(format, lambda: compact(spark, place.table, place.store), monkeypatch)
    compact_through([*driver_steps("compact", format)], place, run)
    compact(spark, place.table, place.store)
    assert len(place.files()) == 2
    check_cleaned(place)
    check_rows(place)


@pytest.mark.parametrize("format", FORMATS)
def test_the_latest_of_keys_that_ended_at_any_step_is_made_up_for(
    spark: SparkSession, tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(spark, tmp_path, format)
    steps = [*driver_steps("latest", format)]
    # The first commit makes the table, and the second fills it.
    latest_through([*steps, *steps], pair, here(format, pair.refresh, monkeypatch))
    pair.refresh()
    pair.check()
    check_cleaned(pair.target)
    pair.check()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("format", list(Format))
def test_a_compaction_killed_at_any_step_changes_no_row(
    spark: SparkSession, tmp_path: Path, format: Format
) -> None:
    place = TableLocation(tmp_path / "lake", format)
    compact_through([*driver_steps("compact", format)], place, killed(tmp_path / "lake", format))
    compact(spark, place.table, place.store)
    assert len(place.files()) == 2
    check_cleaned(place)
    check_rows(place)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("format", list(Format))
def test_the_latest_of_keys_killed_at_any_step_is_made_up_for(
    spark: SparkSession, tmp_path: Path, format: Format
) -> None:
    pair = Pair(spark, tmp_path / "lake", format)
    steps = [*driver_steps("latest", format)]
    latest_through(["before-the-entry", *steps], pair, killed(tmp_path / "lake", format))
    pair.refresh()
    pair.check()
    check_cleaned(pair.target)
    pair.check()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_workers_killed_at_any_step_are_made_up_for_by_other_attempts(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    place, run = TableLocation(root, Format.PARQUET), killed(root, Format.PARQUET)
    steps = [step for step in WORKER_STEPS if step.startswith("compact-")]
    compact_through(steps, place, run)
    assert len(place.files()) == 2
    check_cleaned(place)
    check_rows(place)
    pair = Pair(spark, tmp_path / "pair", Format.PARQUET)
    steps += [step for step in WORKER_STEPS if step.startswith("latest-")]
    latest_through(steps[4:], pair, killed(tmp_path / "pair", Format.PARQUET))
    pair.check()
    check_cleaned(pair.target)
    pair.check()
    died = {path.suffix[1:] for path in tmp_path.iterdir()}
    assert died >= set(steps), "nobody died at some of the steps"
