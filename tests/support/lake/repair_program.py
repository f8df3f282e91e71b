"""A replay from quarantine or a rebuild in a process of its own that dies as by `kill -9`.

`OPERATION ADDRESS TOPIC ROOT FORMAT STEP`: the operation is `replay` or `rebuild`, and STEP names where it dies. The
table is decoded from JSON, with the schema MILD when it is rebuilt.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from support.lake.sync_program import COMMITS, dying

MILD = "id long, name string"

_BEFORE, _AFTER = False, True
STEPS: dict[str, dict[str, tuple[str, bool]]] = {
    "replay": {
        "written": ("flintmq.lake.quarantine.replay:map_in_workers", _AFTER),
        "published": ("flintmq.lake.quarantine.table:_rewrite", _BEFORE),
    },
    "rebuild": {
        "written": ("flintmq.lake.syncing.range_runner:RangeRunner.run", _AFTER),
        "swapped": ("flintmq.lake.syncing.quarantine:TableQuarantine.complete_rebuild", _BEFORE),
    },
}


def steps_of(operation: str, format: str) -> dict[str, tuple[str, bool]]:
    return {**STEPS[operation], **COMMITS[format]}


def main(operation: str, address: str, topic: str, root: str, format: str, step: str) -> None:
    from flintmq.lake.quarantine.open import open_quarantined
    from flintmq.lake.quarantine.replay import replay_quarantined
    from flintmq.lake.rebuild import rebuild
    from flintmq.lake.syncing.options import Decoding, make_options
    from flintmq.spark.session import session

    dying(steps_of(operation, format)[step])
    settings: dict[str, object] = {"spark.driver.memory": "1g", "spark.log.level": "ERROR"}
    spark = session(settings, master="local[2]")
    if operation == "replay":
        replay_quarantined(spark, open_quarantined(root, topic, format))
    else:
        options = make_options([topic], to=root, format=format, bootstrap_servers=address)
        decoding = replace(Decoding(kind="json"), schema=MILD)
        rebuild(spark, options, decoding=decoding)


if __name__ == "__main__":
    main(*sys.argv[1:])
