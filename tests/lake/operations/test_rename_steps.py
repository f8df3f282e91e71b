"""A rename that is killed at any step, or meets others, leaves a table that is refused or complete."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")


from flintmq.lake.drop import drop
from flintmq.lake.tables.factory import OpenedTable, open_table
from flintmq.lake.tables.rename_pointer import (
    POINTER,
    read_pointer,
)
from flintmq.lake.tables.table import Format, TableError, TableRenamed
from support.lake.data_files import SCHEMA, TOPIC
from support.lake.deaths import Killed, Step, dying
from support.lake.renamed_tables import DIRECTORIES, NEW, again, engine_rows, renamed, root_of
from support.lake.table_location import TableLocation

WITHOUT_SPARK = True
COPY = "flintmq.lake.store.local:LocalFileStore.copy_to"
MOVE = "flintmq.lake.rename.directory_move"
POINTERS: dict[str, Step] = {
    "before the first pointer": ("flintmq.lake.store.local:LocalFileStore.put_new", False, 1),
    "the first pointer": ("flintmq.lake.store.local:LocalFileStore.put_new", True, 1),
    "of a table that is not there": ("flintmq.lake.rename.rename:put_pointer", True, 1),
    "of the quarantine": ("flintmq.lake.rename.rename:put_pointer", True, 2),
    "the quarantine is done": ("flintmq.lake.rename.rename:put_pointer", True, 3),
    "before the table is done": ("flintmq.lake.rename.rename:put_pointer", False, 4),
    "the table is done": ("flintmq.lake.rename.rename:put_pointer", True, 4),
    "before the old files": ("flintmq.lake.rename.rename:_clean", False, 1),
}
OPEN = ("before the first pointer", "the table is done", "before the old files", "in the middle of old files")
"""Steps at which the table is there, by its old name or by the new one."""
COPIES: dict[str, Step] = {
    "before the fence": (f"{MOVE}:_commit", False, 1),
    "before the second fence": (f"{MOVE}:_commit", False, 2),
    "before the claim": (f"{MOVE}:DirectoryMove._claim", False, 1),
    "claimed": (f"{MOVE}:DirectoryMove._claim", True, 1),
    "data": (COPY, True, 1),
    "most of the log": (COPY, True, 2),
    "the log": (f"{MOVE}:_copy_new", True, 1),
    "checkpoints": (COPY, True, 3),
    "before the fence is lifted": (f"{MOVE}:_lift_fence", False, 1),
    "the fence is lifted": (f"{MOVE}:_lift_fence", True, 1),
    "data of the table": (COPY, True, 4),
    "the table's log": (f"{MOVE}:_copy_new", True, 2),
    "the table's fence is lifted": (f"{MOVE}:_lift_fence", True, 2),
    "the table is copied": (f"{MOVE}:DirectoryMove.transfer", True, 2),
    "in the middle of old files": ("flintmq.lake.rename.rename:clean_old_directories", True, 2),
}
CATALOG: dict[str, Step] = {
    "before the catalog": ("pyiceberg.catalog.sql:SqlCatalog.rename_table", False, 1),
    "in the catalog": ("pyiceberg.catalog.sql:SqlCatalog.rename_table", True, 1),
    "the second one": ("pyiceberg.catalog.sql:SqlCatalog.rename_table", True, 2),
}


def test_another_commit_during_the_fence_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = TableLocation(tmp_path, Format.PARQUET)
    place.fill([1])
    from flintmq.lake.rename import directory_move

    commit, is_first = directory_move._commit, [True]

    def raced(*args: Any) -> None:
        if is_first.pop() if is_first else False:
            place.fill([1])
        commit(*args)

    monkeypatch.setattr(directory_move, "_commit", raced)
    renamed(place)
    assert engine_rows(place) == 20


@pytest.mark.parametrize(
    ("format", "steps"),
    [
        (Format.PARQUET, COPIES),
        pytest.param(Format.PARQUET, POINTERS, marks=pytest.mark.long),
        pytest.param(Format.DELTA, {**POINTERS, **COPIES}, marks=pytest.mark.long),
        pytest.param(Format.ICEBERG, {**POINTERS, **CATALOG}, marks=pytest.mark.long),
    ],
)
def test_a_rename_killed_at_any_step_is_finished_by_the_next(
    tmp_path: Path, format: Format, steps: dict[str, Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    """P4: the table is refused, or all there, under one name."""
    for number, (name, step) in enumerate(steps.items()):
        place = TableLocation(tmp_path / str(number), format)
        place.fill([2])
        TableLocation(place.root, format, f"{TOPIC}__quarantine").fill([1])
        with monkeypatch.context() as patched:
            dying(step, patched)
            try:
                renamed(place)
            except Killed:
                pass
            else:
                pytest.fail(f"it was not killed: {name}")
        if name not in OPEN:
            finish = f"was begun and not finished.*flintmq lake rename {TOPIC} {NEW}"
            with pytest.raises(TableRenamed, match=finish):
                again(place)
            with pytest.raises(TableRenamed, match=finish):
                renamed(place, "elsewhere")
        renamed(place)
        found = again(place)
        assert len(found.files()) == 2, name
        found.fill([1])
        again(place, f"{TOPIC}__quarantine").fill([1])
        assert (engine_rows(place), engine_rows(place, f"{NEW}__quarantine")) == (30, 20), name
        if format is not Format.ICEBERG:
            assert read_pointer(root_of(place).store(NEW)) is None
            for old in (TOPIC, f"{TOPIC}__quarantine"):
                assert not (Path(place.root) / old / "data").exists(), name


@pytest.mark.parametrize("step", CATALOG)
def test_a_rename_killed_at_the_catalog_is_finished_by_the_next(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TableLocation(tmp_path, Format.ICEBERG)
    place.fill([1])
    TableLocation(place.root, Format.ICEBERG, f"{TOPIC}__quarantine").fill([1])
    with monkeypatch.context() as patched:
        dying(CATALOG[step], patched)
        with pytest.raises(Killed):
            renamed(place)
    with pytest.raises(TableRenamed, match="not finished"):
        again(place)
    renamed(place)
    again(place).fill([1])
    assert (engine_rows(place), engine_rows(place, f"{NEW}__quarantine")) == (20, 10)


@pytest.mark.parametrize("format", DIRECTORIES)
def test_half_a_copy_is_no_table_to_others(
    tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TableLocation(tmp_path, format)
    place.fill([1, 1, 1])
    with monkeypatch.context() as patched:
        dying(COPIES["most of the log"], patched)
        with pytest.raises(Killed):
            renamed(place)
    log = tmp_path / NEW / ("_flintmq/log" if format is Format.PARQUET else "_delta_log")
    assert sorted(os.listdir(log)) == [f"{version:020d}.json" for version in range(1, 5)]
    with pytest.raises(TableError):
        root_of(place).open(NEW, NEW).table.state()
    with pytest.raises(TableRenamed, match="not finished"):
        open_table(place.root, NEW, format)
    with pytest.raises(TableRenamed, match="not finished"):
        root_of(place).open(NEW, NEW).table.create(SCHEMA)
    renamed(place)
    assert engine_rows(place) == 30


def test_a_table_that_another_writer_makes_at_the_target_is_not_mixed_with_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TableLocation(tmp_path, Format.PARQUET)
    place.fill([2])
    intruder = TableLocation(tmp_path, Format.PARQUET, NEW)
    from flintmq.lake.rename.directory_move import DirectoryMove

    claim = DirectoryMove._claim

    def raced(move: DirectoryMove) -> None:
        # Its check for a pointer was before this one was put.
        intruder.fill([1])
        claim(move)

    monkeypatch.setattr(DirectoryMove, "_claim", raced)
    with pytest.raises(TableError, match="already"):
        renamed(place)
    monkeypatch.undo()
    drop(OpenedTable(intruder.table, intruder.store))
    renamed(place)
    assert engine_rows(place) == 20


@pytest.mark.parametrize("format", DIRECTORIES)
def test_a_rename_whose_pointer_was_lost_is_finished(
    tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TableLocation(tmp_path, format)
    place.fill([1])
    with monkeypatch.context() as patched:
        dying(COPIES["data"], patched)
        with pytest.raises(Killed):
            renamed(place)
    (tmp_path / TOPIC / POINTER).unlink()
    with pytest.raises(TableRenamed, match="named sales now"):
        renamed(place, "revenue")
    renamed(place)
    assert engine_rows(place) == 10


def test_a_pointer_stays_where_the_fence_may_have_been_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the store is away after the commit, and deltalake cannot read the table."""
    place = TableLocation(tmp_path, Format.DELTA)
    place.fill([1])
    from flintmq.lake.rename import directory_move

    commit = directory_move._commit

    def fail(*args: Any) -> None:
        with suppress(TableRenamed):
            commit(*args)
        raise TableError("the store is away")

    monkeypatch.setattr(directory_move, "_commit", fail)
    with pytest.raises(TableError, match="the store is away"):
        renamed(place)
    monkeypatch.undo()
    with pytest.raises(TableRenamed, match="Finish it with"):
        again(place)
    renamed(place)
    assert engine_rows(place) == 10


def test_of_two_renames_at_once_to_different_names_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TableLocation(tmp_path, Format.PARQUET)
    place.fill([1])
    from flintmq.lake.rename.rename import _Rename

    check, is_first = _Rename._check_begin, [True]

    def raced(one: Any, move: Any) -> None:
        check(one, move)
        if is_first and is_first.pop():
            renamed(place, "revenue")

    monkeypatch.setattr(_Rename, "_check_begin", raced)
    with pytest.raises(TableError):
        renamed(place)
    assert engine_rows(place, "revenue") == 10
    assert len(again(place).rows()) == 10
