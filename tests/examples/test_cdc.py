"""examples/cdc-latest: the table is what the changes made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.pipeline.examples import Example


@pytest.mark.long
def test_the_table_is_what_the_changes_made(example: Callable[[str], Example]) -> None:
    cdc = example("cdc-latest")
    cdc.follow()
    alive: dict[int, dict[str, Any]] = {}
    deleted = 0
    for change in cdc.module("make_changes").changes(40, 1):
        row = {name: change[name] for name in ("id", "version", "city", "points")}
        if change["op"] == "delete":
            deleted += 1
            del alive[change["id"]]
        else:
            alive[change["id"]] = row
    assert deleted > 0
    rows = cdc.delta("lake/customers")
    assert sorted(rows, key=lambda one: one["id"]) == [alive[number] for number in sorted(alive)]
