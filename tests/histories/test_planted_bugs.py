"""The checker of histories can fail: a real broker with one mistake in it is found out by its clients (R8, N1)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.histories.checker import Kind
from support.histories.flawed_broker import FLAW, FLAWS
from support.histories.nemesis import Deed
from support.histories.stage import Stage

SECONDS = 3.0
PATIENCE_S = 8.0
"""Some clients wait in vain for what such a broker does not do."""
SEED = 6
TESTS = Path(__file__).resolve().parents[1]

EXPECTED = {
    "answers_without_writing": {Kind.LOST_WRITE, Kind.INCONSISTENT_OFFSETS},
    "writes_twice": {Kind.DUPLICATE},
    "tells_wrong_offsets": {Kind.BACKWARD_SEND, Kind.INCONSISTENT_OFFSETS},
    "cuts_logs_at_the_start": {Kind.UNSEEN_AT_THE_END},
    "shows_open_transactions": {Kind.READ_BEFORE_COMMIT, Kind.ABORTED_READ},
    "forgets_aborted_transactions": {Kind.ABORTED_READ},
    "aborts_in_one_partition": {Kind.TORN_TRANSACTION},
    "leaves_out_markers": {Kind.HANGING_TRANSACTION},
    "skips_batches": {Kind.SKIPPED_POLL},
    "sends_readers_back": {Kind.BACKWARD_POLL},
    "does_not_keep_offsets": {Kind.LOST_OFFSET},
    "drops_offsets_of_transactions": {Kind.LOST_OFFSET, Kind.PROCESSED_TWICE},
}
"""What at least is told of each; one mistake has many consequences."""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("flaw", FLAWS)
def test_a_broker_with_a_mistake_is_found_out(tmp_path: Path, flaw: str) -> None:
    paths = [str(TESTS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    env = {FLAW: flaw, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    deeds = [Deed(1.5, "kill", 0.1)] if flaw == "cuts_logs_at_the_start" else []
    with Stage(tmp_path, program="support.histories.flawed_broker", env=env) as stage:
        result = stage.play(SEED, SECONDS, deeds, patience_s=PATIENCE_S)
    assert EXPECTED[flaw] <= {anomaly.kind for anomaly in result.anomalies}, str(result)
