"""A replay from some point on that has begun goes on from there, and from no other point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")

from flintmq.errors import ConfigurationError
from flintmq.pipeline import Examined, Pipeline
from flintmq.pipeline.runtime import replay as replaying
from flintmq.pipeline.runtime.checkpoint import Checkpoint

Examine = Callable[..., Examined]

FILE = """\
name: x
sources:
  a: {topic: a, decode: json}
  b: {topic: b, decode: json, stream: false}
sinks:
  out: {from: a, topic: out}
  all: {from: b, console: 1}
"""


@pytest.fixture
def replay(examined: Examine, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Does all but run: the checkpoint is what a run that has begun leaves."""

    def begin(run: Any) -> None:
        Checkpoint.open(run.pipeline).save(run.pipeline)

    monkeypatch.setattr(replaying, "carry_out", begin)
    pipeline = examined(FILE).pipeline
    assert isinstance(pipeline, Pipeline)
    spark: Any = None
    return lambda start, suffix="-again": replaying.replay_from(spark, pipeline, start, suffix=suffix)


def test_another_start_is_refused_and_the_same_goes_on(replay: Callable[..., Any]) -> None:
    replay("2026-01-15T00:00:00Z")
    replay("2026-01-15T00:00:00Z")
    with pytest.raises(ConfigurationError) as caught:
        replay("earliest")
    said = str(caught.value)
    assert said.startswith(
        "--from earliest: the replay to names with -again has begun from 2026-01-15T00:00:00Z"
    )
    assert "another --to-suffix" in said
    replay("earliest", "-other")


def test_offsets_are_compared_by_what_they_mean_for_a_source(replay: Callable[..., Any]) -> None:
    replay('{"a": {"0": 5}, "c": {"0": 1}}')
    replay('{"a":{"0":5}}')
    with pytest.raises(ConfigurationError, match="has begun from"):
        replay('{"a": {"0": 6}}')
