"""Workers of Spark do not look for garbage in what they have imported, and nobody else's collector is touched."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from flintmq.arrow import worker_gc


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_gc, "_times", 0)
    was_frozen = gc.get_freeze_count() > 0  # by the tests' conftest
    gc.unfreeze()
    yield
    gc.unfreeze()
    if was_frozen:
        gc.freeze()


def test_a_worker_settles_in_its_first_tasks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec("pyspark.daemon", None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    counts = []
    for _ in range(4):
        kept: list[object] = [[] for _ in range(1000)]
        worker_gc.freeze_imports()
        counts.append(gc.get_freeze_count())
        kept.clear()
    assert counts[0] > 1000
    assert counts[3] <= counts[2] < counts[1], "what later tasks make is collected"


def test_other_processes_are_left_alone() -> None:
    worker_gc.freeze_imports()
    assert gc.get_freeze_count() == 0
