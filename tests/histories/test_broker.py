"""A broker that is killed, paused and cut off keeps every promise to clients of all kinds (R1, R7, R8, N1; F6, Z2).

What must hold is in `support.histories.checker`, what is done in `support.histories.stage` and `nemesis`. The seed
decides the blows; `FLINT_SEED=… pytest tests/histories -k promises` strikes as before. `FLINT_HISTORY_SECONDS` is for
longer and shorter runs; the long one has rounds, each with topics of its own, until its time is over.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random, SystemRandom

import pytest

from support.histories.history import GaveUp, Operation, Send
from support.histories.nemesis import plan
from support.histories.stage import Result, Stage

SECONDS = float(os.environ.get("FLINT_HISTORY_SECONDS", "15"))
LONG_SECONDS = float(os.environ.get("FLINT_HISTORY_SECONDS", "1800"))
ROUND_SECONDS = 90.0
LAST_SEED = 1 << 31
SEEDS_TRIED = 100


def first_seed() -> int:
    chosen = os.environ.get("FLINT_SEED")
    return int(chosen) if chosen is not None else SystemRandom().randrange(LAST_SEED)


def seed_with_a_kill(seconds: float) -> int:
    """Return the chosen seed, or a new one: among the few blows of a short run at least one is a kill."""
    seed = first_seed()
    for _ in range(SEEDS_TRIED):
        if "FLINT_SEED" in os.environ or any("kill" in deed.what for deed in plan(seed, seconds)):
            break
        seed = first_seed()
    return seed


def play(stage: Stage, seed: int, seconds: float, capsys: pytest.CaptureFixture[str]) -> Result:
    with capsys.disabled():
        print(f"\nFLINT_SEED={seed}", flush=True)
    try:
        result = stage.play(seed, seconds, plan(seed, seconds))
    except Exception as error:
        raise AssertionError(f"FLINT_SEED={seed}: {error!r}\n{stage.broker.errors}") from error
    with capsys.disabled():
        print(result, flush=True)
    if result.anomalies or result.failures:
        story = stage.folder / f"history-{seed}.txt"
        story.write_text("\n".join(map(repr, result.history)))
        print(f"the whole history is in {story}")
    return result


def check(result: Result) -> None:
    assert not result.anomalies, f"FLINT_SEED={result.seed}: {result}"
    assert not result.failures, f"FLINT_SEED={result.seed}: {result}"
    refused: list[Operation] = [
        one for one in result.history if isinstance(one, GaveUp) and "idempotent" in one.process
    ]
    refused += [
        one for one in result.history if isinstance(one, Send) and one.error and one.transaction is None
    ]
    assert not refused, f"FLINT_SEED={result.seed}: idempotent producers need not give up: {refused}"
    assert len(result.history) > 20 * result.seconds, "too little was done to tell"
    assert result.blows.total() > result.seconds / 30, "too little was done to the broker to tell"


@pytest.mark.timeout(400)
def test_a_broker_under_blows_keeps_its_promises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Stage(tmp_path) as stage:
        result = play(stage, seed_with_a_kill(SECONDS), SECONDS, capsys)
    check(result)


@pytest.mark.long
@pytest.mark.timeout(LONG_SECONDS + 900)
def test_the_same_in_many_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = Random(first_seed())
    deadline = time.monotonic() + LONG_SECONDS
    with Stage(tmp_path) as stage:
        while (left_s := deadline - time.monotonic()) > 0:
            seed = seeds.randrange(LAST_SEED)
            check(play(stage, seed, min(ROUND_SECONDS, max(left_s, 10.0)), capsys))
            stage.restart()


def test_a_seed_gives_the_same_blows_again() -> None:
    assert plan(7, 60) == plan(7, 60)
    assert plan(7, 60) != plan(8, 60)
    assert sum(deed.after_s + deed.lasts_s for deed in plan(7, 60)) <= 60
    kinds = {deed.what for seed in range(5) for deed in plan(seed, 60)}
    assert kinds >= {"kill", "kill twice", "pause", "cut", "silence", "shut out"}
