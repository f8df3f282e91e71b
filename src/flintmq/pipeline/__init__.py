"""Pipelines declared in a file: what is read, what is done with it, and where it goes.

    pipeline = flintmq.pipeline.load("orders.yaml")         # PipelineError has every problem with its line and column
    for node in pipeline.order(): …

    spec/            the file: its declaration, its text with positions, its graph, its problems
    validate/        checks that need no Spark
    loading          both, from a path
    plan/            the flow as text
    sources/ sinks/  sources as data frames, sinks as streaming queries
    dead_letters/    records that could not be processed: staged, published, looked up, read again
    runtime/         the pipeline on Spark: compiled, checkpointed, watched, replayed

Importing this package imports neither pyspark nor pyarrow, and opens no connection: a file can be checked where
neither is installed. `run` is imported when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flintmq.pipeline.loading import Examined, examine, examine_all, load
from flintmq.pipeline.spec.changes import Change, Fingerprint, changes, fingerprints
from flintmq.pipeline.spec.model import (
    AnyNode,
    ConsoleSink,
    DedupStep,
    FilesSink,
    FilesSource,
    JdbcSink,
    Pipeline,
    PythonStep,
    Sink,
    Source,
    SqlStep,
    StateStep,
    Step,
    TableSink,
    TableSource,
    TopicSink,
    TopicSource,
)
from flintmq.pipeline.spec.parts import (
    DeadLetters,
    Decode,
    Dedup,
    Encode,
    Expectation,
    FileDecode,
    State,
    Trigger,
    Watermark,
)
from flintmq.pipeline.spec.problems import PipelineError, Problem, Rule, Severity
from flintmq.pipeline.spec.source_map import Place
from flintmq.pipeline.validate.structure import Check, check

if TYPE_CHECKING:
    from flintmq.pipeline.runtime.replay import replay_dead_letters as replay_dead_letters
    from flintmq.pipeline.runtime.replay import replay_from as replay_from
    from flintmq.pipeline.runtime.runner import run as run

__all__ = [
    "AnyNode",
    "Change",
    "Check",
    "ConsoleSink",
    "DeadLetters",
    "Decode",
    "Dedup",
    "DedupStep",
    "Encode",
    "Examined",
    "Expectation",
    "FileDecode",
    "FilesSink",
    "FilesSource",
    "Fingerprint",
    "JdbcSink",
    "Pipeline",
    "PipelineError",
    "Place",
    "Problem",
    "PythonStep",
    "Rule",
    "Severity",
    "Sink",
    "Source",
    "SqlStep",
    "State",
    "StateStep",
    "Step",
    "TableSink",
    "TableSource",
    "TopicSink",
    "TopicSource",
    "Trigger",
    "Watermark",
    "changes",
    "check",
    "examine",
    "examine_all",
    "fingerprints",
    "load",
]

_HOMES = {
    "replay_dead_letters": "flintmq.pipeline.runtime.replay",
    "replay_from": "flintmq.pipeline.runtime.replay",
    "run": "flintmq.pipeline.runtime.runner",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
