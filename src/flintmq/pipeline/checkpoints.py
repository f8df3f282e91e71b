"""The folder that remembers how far a pipeline is, and whether a file may go on with it.

    pipeline.json          whose it is: an id, the fingerprints of its nodes, schemas that were inferred
    sinks/<sink>/          Spark's own checkpoint of the sink's query
    dead/<query>/<batch>/  dead letters that are not published yet (`staging`)

Invariant: a run begins only if what the checkpoint was made with and the file fit; what cannot change is told at its
place. Spark's own files are read here and never changed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from flintmq.errors import ConfigurationError
from flintmq.lake.store import Store, join, open_store
from flintmq.pipeline.changes import Change, changes, fingerprints, from_json
from flintmq.pipeline.control import located
from flintmq.pipeline.model import FilesSink, Pipeline
from flintmq.pipeline.places import place_of
from flintmq.pipeline.problems import PipelineError, Problem, Rule

_ABOUT: Final = "pipeline.json"
_VERSION: Final = 1
_SINKS: Final = "sinks"
_FILES_LOG: Final = "_spark_metadata"


@dataclass
class Checkpoint:
    url: str
    store: Store
    id: str
    schemas: dict[str, Any] = field(default_factory=dict)
    """What was inferred, by source."""
    kept: dict[str, Any] | None = None
    """The fingerprints that it was last run with, as JSON; None if it is new."""

    @staticmethod
    def open(pipeline: Pipeline, path: str | None = None) -> Checkpoint:
        url = located(path or pipeline.checkpoint_path)
        store = open_store(url)
        data = store.get(_ABOUT)
        if data is None:
            return Checkpoint(url, store, uuid.uuid4().hex)
        about = json.loads(data)
        if about["version"] != _VERSION:
            raise ConfigurationError(f"{url} was made by a newer FlintMQ; use that one")
        if about["name"] != pipeline.name:
            place = place_of(pipeline.checkpoint or pipeline.name, pipeline.place)
            message = f"{url} is the checkpoint of the pipeline {about['name']}"
            hint = "give this one a checkpoint of its own, by `checkpoint` or by its `name`"
            raise PipelineError([Problem(Rule.CHECKPOINT, place, message, hint)])
        return Checkpoint(url, store, about["id"], about["schemas"], about["nodes"])

    @property
    def is_new(self) -> bool:
        return self.kept is None

    def of_sink(self, sink: str) -> str:
        return join(self.url, _SINKS, sink)

    def check(self, pipeline: Pipeline) -> list[Change]:
        """What has changed since the last run; PipelineError if something has that cannot."""
        if self.kept is None:
            return []
        found = changes(from_json(self.kept), fingerprints(pipeline))
        places = {node.name: node.place for node in pipeline.nodes()}
        hint = (
            f"undo it, or begin anew with another `checkpoint`: this one is {self.url}, and what it remembers of "
            "the old file does not fit the new one"
        )
        problems = [
            Problem(
                Rule.CHECKPOINT, places.get(one.node, pipeline.place), f"`{one.node}`: {one.message}", hint
            )
            for one in found
            if not one.is_allowed
        ]
        if problems:
            raise PipelineError(problems)
        return found

    def save(self, pipeline: Pipeline) -> None:
        """Before the first query starts: from then on there is something to go on with."""
        self.kept = {name: list(one) for name, one in fingerprints(pipeline).items()}
        about = {
            "version": _VERSION,
            "id": self.id,
            "name": pipeline.name,
            "schemas": self.schemas,
            "nodes": self.kept,
        }
        self.store.put(_ABOUT, json.dumps(about, indent=1).encode())

    def query_id(self, sink: str) -> str | None:
        """None if the sink has never run."""
        data = self.store.get(f"{_SINKS}/{sink}/metadata")
        return None if data is None else str(json.loads(data)["id"])

    def committed(self, sink: str) -> int:
        """The last batch that is done; -1 if none is."""
        names = [entry.path.rpartition("/")[2] for entry in self.store.list(f"{_SINKS}/{sink}/commits")]
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def sinks(self) -> Sequence[str]:
        """All that ever ran, also those that the file has no more."""
        entries = self.store.list(_SINKS)
        return sorted({one.path.split("/")[1] for one in entries if one.path.endswith("/metadata")})

    @staticmethod
    def has_files(path: str, batch: int) -> bool:
        """Whether Spark's own log in a folder knows a batch."""
        names = (one.path.rpartition("/")[2] for one in open_store(located(path)).list(_FILES_LOG))
        numbers = (name.removesuffix(".compact") for name in names)
        return any(number.isdecimal() and int(number) >= batch for number in numbers)

    def check_files(self, sink: FilesSink, path: str) -> None:
        """Spark skips batches whose numbers a folder knows, whoever wrote them: rows would be missing."""
        if self.query_id(sink.name) is None and self.has_files(path, 0):
            raise PipelineError(
                [
                    Problem(
                        Rule.CHECKPOINT,
                        place_of(sink.files, sink.place),
                        f"{path} was written by a stream of another checkpoint, and Spark would leave rows out",
                        "write to another folder, or bring the checkpoint back",
                    )
                ]
            )
