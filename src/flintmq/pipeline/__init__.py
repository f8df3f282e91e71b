"""Pipelines declared in a file: what is read, what is done with it, and where it goes.

    pipeline = flintmq.pipeline.load("orders.yaml")         # PipelineError has every problem with its line and column
    for node in pipeline.order(): …

    places, problems          where things stand in a file, and what is wrong with them
    declaration, parts, model what a file may have, declared once: as the classes that it becomes
    document, environment     YAML whose values know their places; `${NAME}`
    columns, durations, sql   texts within the file
    reading                   a document by the declaration
    graph                     who reads whom
    checking…                 what must hold, before Spark starts
    loading                   all of this, from a path
    changes                   a changed file and its checkpoint
    describing, layout,
    drawing                   the flow as text
    masking                   no passwords in either

Nothing here knows Spark or opens a connection: a file can be checked where neither is installed.
"""

from flintmq.pipeline.changes import Change, Fingerprint, changes, fingerprints
from flintmq.pipeline.checking import Check, check
from flintmq.pipeline.loading import Examined, examine, examine_all, load
from flintmq.pipeline.model import (
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
from flintmq.pipeline.parts import (
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
from flintmq.pipeline.places import Place
from flintmq.pipeline.problems import PipelineError, Problem, Rule, Severity

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
