"""The folder that remembers how far a pipeline is, and whether a file may go on with it.

    pipeline.json          whose it is: an id, the fingerprints of its nodes, those of sinks that are removed and may
                           come back, schemas that were inferred
    sinks/<sink>/          Spark's own checkpoint of the sink's query
    dead/<query>/<batch>/  dead letters that are not published yet (`staging`)

Invariant: a run begins only if what the checkpoint was made with and the file fit; what cannot change is told at its
place. Spark's own files are read here and never changed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from flintmq.errors import ConfigurationError
from flintmq.lake.store.store import Store, join, open_store
from flintmq.pipeline.runtime.control import located
from flintmq.pipeline.spec.changes import (
    Change,
    Fingerprint,
    changes,
    changes_of_returned,
    fingerprints,
    from_json,
    made_from,
    renamed,
    sinks_of,
)
from flintmq.pipeline.spec.model import FilesSink, Pipeline
from flintmq.pipeline.spec.problems import PipelineError, Problem, Rule
from flintmq.pipeline.spec.source_map import place_of

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
    removed: dict[str, Any] = field(default_factory=dict)
    """By sink that the file has no more: the fingerprints of what it was made from, as JSON."""

    @staticmethod
    def open(pipeline: Pipeline, path: str | None = None) -> Checkpoint:
        url = located(path or pipeline.checkpoint_path)
        store = open_store(url)
        data = store.get(_ABOUT)
        if data is None:
            return Checkpoint(url, store, uuid.uuid4().hex)
        about = _about(data, join(url, _ABOUT))
        if about["name"] != pipeline.name:
            place = place_of(pipeline.checkpoint or pipeline.name, pipeline.place)
            message = f"{url} is the checkpoint of the pipeline {about['name']}"
            hint = "give this one a checkpoint of its own, by `checkpoint` or by its `name`"
            raise PipelineError([Problem(Rule.CHECKPOINT, place, message, hint)])
        return Checkpoint(url, store, about["id"], about["schemas"], about["nodes"], about["removed"])

    @property
    def is_new(self) -> bool:
        return self.kept is None

    def of_sink(self, sink: str) -> str:
        return join(self.url, _SINKS, sink)

    def check(self, pipeline: Pipeline, *, left_out: Collection[str] = ()) -> list[Change]:
        """What has changed since the last run; PipelineError if something has that cannot.

        `left_out` are sinks that the file has and this run has not.
        """
        if self.kept is None:
            return []
        found = self._changes(fingerprints(pipeline), left_out)
        places = {node.name: node.place for node in pipeline.nodes()}
        hint = (
            f"undo it, or begin anew with another `checkpoint`: this one is {self.url}, and what it remembers of "
            "the old file does not fit the new one"
        )
        problems = [
            Problem(
                Rule.CHECKPOINT,
                places.get(one.node, pipeline.place),
                f"`{one.node}`: {one.message}",
                one.hint or hint,
            )
            for one in found
            if not one.is_allowed
        ]
        if problems:
            raise PipelineError(problems)
        return found

    def _changes(self, new: Mapping[str, Fingerprint], left_out: Collection[str]) -> list[Change]:
        old = from_json(self.kept or {})
        known = set(self.sinks())
        back = {
            name: from_json(prints)
            for name, prints in self.removed.items()
            if name in known and name in sinks_of(new) and name not in sinks_of(old)
        }
        found = [one for one in changes(old, new) if one.node not in back]
        for name, prints in back.items():
            found += changes_of_returned(name, prints, new)
        gone = {name: prints for name, prints in self._gone(new).items() if name not in left_out}
        fresh = [name for name in sinks_of(new) if name not in known]
        return list({(one.node, one.message): one for one in [*found, *renamed(fresh, gone, new)]}.values())

    def _gone(self, new: Mapping[str, Fingerprint]) -> dict[str, dict[str, Fingerprint]]:
        """Sinks that have a folder here and are not in the file any more, with what they were made from."""
        old = from_json(self.kept or {})
        found: dict[str, dict[str, Fingerprint]] = {}
        for name in self.sinks():
            if name in sinks_of(new):
                continue
            if name in sinks_of(old):
                found[name] = made_from(old, name)
            elif name in self.removed:
                found[name] = from_json(self.removed[name])
        return found

    def save(self, pipeline: Pipeline) -> None:
        """Before the first query starts: from then on there is something to go on with."""
        new = fingerprints(pipeline)
        self.removed = {name: _as_json(prints) for name, prints in self._gone(new).items()}
        self.kept = _as_json(new)
        about = {
            "version": _VERSION,
            "id": self.id,
            "name": pipeline.name,
            "schemas": self.schemas,
            "nodes": self.kept,
            "removed": self.removed,
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


def _as_json(prints: Mapping[str, Fingerprint]) -> dict[str, Any]:
    return {name: list(one) for name, one in prints.items()}


def _about(data: bytes, path: str) -> dict[str, Any]:
    """What `pipeline.json` says, if it is whole."""
    try:
        about: dict[str, Any] = json.loads(data)
        if about["version"] != _VERSION:
            raise ConfigurationError(f"{path} was made by a newer FlintMQ; use that one")
        removed: dict[str, Any] = about.get("removed", {})
        for prints in (about["nodes"], *removed.values()):
            from_json(prints)
        return {**{name: about[name] for name in ("id", "name", "schemas", "nodes")}, "removed": removed}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigurationError(
            f"{path} is damaged ({why}); bring it back from a copy, or begin anew with another `checkpoint` and "
            "other names for what is written"
        ) from error
