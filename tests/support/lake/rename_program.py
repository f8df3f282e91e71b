"""`flintmq lake rename` in a process of its own that dies as by `kill -9`: `TOPIC NAME ROOT FORMAT STEP`."""

from __future__ import annotations

import sys

from support.lake.sync_program import COMMITS, dying

_BEFORE, _AFTER = False, True
_MOVE = "flintmq.lake.rename.directory_move"
_COMMON: dict[str, tuple[str, bool]] = {
    "begun": ("flintmq.lake.store.local:LocalFileStore.put_new", _AFTER),
    "pointed": ("flintmq.lake.rename.rename:put_pointer", _AFTER),
    "renamed": ("flintmq.lake.rename.rename:_clean", _BEFORE),
}
_COPIED: dict[str, tuple[str, bool]] = {
    **_COMMON,
    **COMMITS["parquet"],
    "claimed": (f"{_MOVE}:DirectoryMove._claim", _AFTER),
    "copied": ("flintmq.lake.store.local:LocalFileStore.copy_to", _AFTER),
    "logged": (f"{_MOVE}:_copy_new", _AFTER),
    "lifted": (f"{_MOVE}:_lift_fence", _AFTER),
}
STEPS: dict[str, dict[str, tuple[str, bool]]] = {
    "parquet": _COPIED,
    "delta": _COPIED,
    "iceberg": {
        **_COMMON,
        "before-the-catalog": ("pyiceberg.catalog.sql:SqlCatalog.rename_table", _BEFORE),
        "in-the-catalog": ("pyiceberg.catalog.sql:SqlCatalog.rename_table", _AFTER),
    },
}
DONE = ("renamed",)
"""Steps after which the table is complete under its new name."""


def main(topic: str, name: str, root: str, format: str, step: str) -> None:
    from flintmq.cli.main import main as flintmq

    dying(STEPS[format][step])
    flintmq(["lake", "rename", topic, name, "--to", root, "--format", format])


if __name__ == "__main__":
    main(*sys.argv[1:])
