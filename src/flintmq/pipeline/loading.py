"""A pipeline from its file, with everything checked that can be checked without Spark.

    pipeline = load("orders.yaml")              # PipelineError has all that is wrong
    loaded = examine("orders.yaml")             # the same for who wants the warnings, too

Invariant: `load` gives a pipeline without errors. Nothing is imported, started or connected to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from flintmq.pipeline.spec.document import TEXT_MAX, compose
from flintmq.pipeline.spec.model import Pipeline
from flintmq.pipeline.spec.problems import PipelineError, Problem, Rule, Severity, in_order
from flintmq.pipeline.spec.reader import SpecReader
from flintmq.pipeline.spec.source_map import Place, SourceFile, place_of
from flintmq.pipeline.validate.files import check_files
from flintmq.pipeline.validate.schema_texts import check_texts
from flintmq.pipeline.validate.structure import Check, check


@dataclass(frozen=True, slots=True)
class Examined:
    """A file, and all that is to be said of it."""

    file: str
    pipeline: Pipeline | None
    """None if there is too much wrong to have one; with errors it may be half of one, and must not run."""
    problems: Sequence[Problem]

    @property
    def is_valid(self) -> bool:
        return not any(problem.is_error for problem in self.problems)


def load(
    path: str, *, environment: Mapping[str, str] | None = None, checks: Sequence[Check] = ()
) -> Pipeline:
    """PipelineError if anything is wrong; warnings alone are nothing wrong. `checks` are more than the usual ones."""
    examined = examine(path, environment=environment, checks=checks)
    if examined.pipeline is None or not examined.is_valid:
        raise PipelineError(examined.problems)
    return examined.pipeline


def examine(
    path: str, *, environment: Mapping[str, str] | None = None, checks: Sequence[Check] = ()
) -> Examined:
    source = _read(path)
    if isinstance(source, Problem):
        return Examined(path, None, [source])
    node = compose(source)
    if isinstance(node, Problem):
        return Examined(path, None, [node])
    reader = SpecReader(source, os.environ if environment is None else environment)
    pipeline = reader.pipeline(node)
    problems = list(reader.problems)
    if pipeline is not None:
        problems += check(pipeline, broken=reader.broken)
        problems += check_files(pipeline)
        problems += _neighbours(pipeline)
        if not any(problem.is_error for problem in problems):
            # What costs more and knows more is asked only when all else is right.
            problems += check_texts(pipeline)
            problems += [problem for one in checks for problem in one(pipeline)]
    return Examined(path, pipeline, in_order(problems))


def examine_all(
    paths: Sequence[str], *, environment: Mapping[str, str] | None = None, checks: Sequence[Check] = ()
) -> list[Examined]:
    """Several files, which must not share a checkpoint."""
    found: list[Examined] = []
    owners: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        examined = examine(path, environment=environment, checks=checks)
        problems = list(examined.problems)
        if examined.pipeline is not None:
            checkpoint = _normal(examined.pipeline.checkpoint_path)
            owner = owners.setdefault(checkpoint, path)
            if owner != path:
                # The same may have been said already, of a neighbour.
                problems = [one for one in problems if one.rule is not Rule.CHECKPOINT]
                problems.append(_shared(examined.pipeline, owner, Severity.ERROR))
        found.append(Examined(path, examined.pipeline, in_order(problems)))
    return found


def _read(path: str) -> SourceFile | Problem:
    place = Place(path, 0, 0)
    try:
        with open(path, "rb") as file:
            data = file.read(4 * TEXT_MAX + 1)
    except OSError as error:
        return Problem(Rule.YAML, place, f"cannot be read: {error.strerror}")
    try:
        return SourceFile(path, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return Problem(Rule.YAML, Place(path, line, 1), "not valid UTF-8: save the file in this encoding")


def _neighbours(pipeline: Pipeline) -> list[Problem]:
    """Other files in the folder that have the same checkpoint: copies of this one, most often."""
    folder = os.path.dirname(pipeline.file)
    checkpoint = _normal(pipeline.checkpoint_path)
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:
        return []
    for name in names:
        path = os.path.join(folder, name)
        if not name.endswith((".yaml", ".yml")) or _normal(path) == _normal(pipeline.file):
            continue
        other = _checkpoint_of(path)
        if other is not None and _normal(other) == checkpoint:
            return [_shared(pipeline, path, Severity.WARNING)]
    return []


def _checkpoint_of(path: str) -> str | None:
    """Of a file that looks like a pipeline."""
    source = _read(path)
    node = None if isinstance(source, Problem) else compose(source)
    if not isinstance(node, yaml.MappingNode):
        return None
    plain = {
        key.value: value.value
        for key, value in node.value
        if isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode)
    }
    kinds = {key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)}
    if not {"name", "sources", "sinks"} <= kinds or "name" not in plain:
        return None
    half = Pipeline(name=plain["name"], sources={}, sinks={}, checkpoint=plain.get("checkpoint"), file=path)
    return half.checkpoint_path


def _shared(pipeline: Pipeline, other: str, severity: Severity) -> Problem:
    value = pipeline.checkpoint if pipeline.checkpoint is not None else pipeline.name
    return Problem(
        Rule.CHECKPOINT,
        place_of(value, pipeline.place),
        f"{other} has the same checkpoint, {pipeline.checkpoint_path}",
        "give each pipeline its own, by `checkpoint` or by its `name`",
        severity,
    )


def _normal(path: str) -> str:
    return path if "://" in path else os.path.realpath(path)
