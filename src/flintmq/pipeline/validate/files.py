"""Whether the files that a pipeline names are there, and have in them what it names.

Reads files and imports none: Python is looked at as text. Invariant: a file that cannot be read is a problem, and no
error.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from flintmq.pipeline.spec.model import FilesSource, Pipeline, PythonStep, StateStep, TopicSink, TopicSource
from flintmq.pipeline.spec.parts import Decode, Encode
from flintmq.pipeline.spec.problems import Problem, Rule, did_you_mean
from flintmq.pipeline.spec.source_map import Place, place_of


def check_files(pipeline: Pipeline) -> Iterator[Problem]:
    for source in pipeline.sources.values():
        if isinstance(source, TopicSource):
            yield from _schema(pipeline, source.decode)
        elif isinstance(source, FilesSource):
            yield from _folder(pipeline, source)
    for step in pipeline.steps.values():
        if isinstance(step, PythonStep):
            yield from _python(pipeline, step.python, step.place, "function")
        elif isinstance(step, StateStep):
            yield from _python(pipeline, step.state.python, step.state.place, "class")
    for sink in pipeline.sinks.values():
        if isinstance(sink, TopicSink):
            yield from _schema(pipeline, sink.value)


def _schema(pipeline: Pipeline, part: Decode | Encode) -> Iterator[Problem]:
    if part.schema_file is not None and not os.path.isfile(path := pipeline.path(part.schema_file)):
        place = place_of(part.schema_file, part.place)
        yield Problem(Rule.MISSING_FILE, place, f"there is no file {path}", _beside(path))
    if part.registry is not None and "://" not in part.registry:
        path = pipeline.path(part.registry)
        if not os.path.isdir(path):
            place = place_of(part.registry, part.place)
            hint = "a registry is an address such as http://localhost:8081, or a folder of schemas"
            yield Problem(Rule.MISSING_FILE, place, f"there is no folder {path}", hint)


def _folder(pipeline: Pipeline, source: FilesSource) -> Iterator[Problem]:
    """The folder only: files may come later."""
    if "://" in source.files:
        return
    path = pipeline.path(source.files)
    while any(char in path for char in "*?[{"):
        path = os.path.dirname(path)
    if path and not os.path.exists(path):
        yield Problem(
            Rule.MISSING_FILE, place_of(source.files, source.place), f"there is no {path}", _beside(path)
        )


def _python(pipeline: Pipeline, reference: str, otherwise: Place, what: str) -> Iterator[Problem]:
    place = place_of(reference, otherwise)
    file, colon, name = reference.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        hint = f"write the file and the {what}, such as steps.py:{'sessions' if what == 'function' else 'Sessions'}"
        yield Problem(Rule.PYTHON, place, f"{str(reference)!r} names no {what}", hint)
        return
    path = pipeline.path(file)
    try:
        with open(path, "rb") as opened:
            tree = ast.parse(opened.read(), path)
    except FileNotFoundError:
        yield Problem(Rule.PYTHON, place, f"there is no file {path}", _beside(path))
        return
    except OSError as error:
        yield Problem(Rule.PYTHON, place, f"{path} cannot be read: {error.strerror}")
        return
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        yield Problem(Rule.PYTHON, place, f"{path} is not valid Python{line}: {getattr(error, 'msg', error)}")
        return
    # Behind the colon: there the name is wrong, and not the file.
    name_place = place_of(reference, otherwise, offset=len(file) + 1)
    found = _defined(tree)
    if name not in found:
        hint = did_you_mean(name, sorted(one for one in found if not one.startswith("_")))
        yield Problem(Rule.PYTHON, name_place, f"{path} has no {what} {name}", hint)
    elif found[name] not in (what, ""):
        yield Problem(Rule.PYTHON, name_place, f"{name} in {path} is a {found[name]}, and should be a {what}")


def _defined(tree: ast.Module) -> dict[str, str]:
    """Names at the top of a module, also under `if` and `try`, and what they are; empty where that is not plain."""
    found: dict[str, str] = {}
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        match waiting.pop(0):
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found[name] = "function"
            case ast.ClassDef(name=name):
                found[name] = "class"
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found.update({(alias.asname or alias.name).partition(".")[0]: "" for alias in names})
            case ast.Assign(targets=targets):
                found.update(
                    {
                        one.id: ""
                        for target in targets
                        for one in ast.walk(target)
                        if isinstance(one, ast.Name)
                    }
                )
            case ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = ""
            case ast.If() | ast.Try() | ast.With() | ast.ExceptHandler() as block:
                waiting += [
                    child
                    for child in ast.iter_child_nodes(block)
                    if isinstance(child, (ast.stmt, ast.excepthandler))
                ]
            case _:
                pass
    return found


def _beside(path: str) -> str:
    """What is in the folder and has a name like it."""
    try:
        names = os.listdir(os.path.dirname(path) or ".")
    except OSError:
        return "paths are looked for beside the pipeline's file"
    hint = did_you_mean(os.path.basename(path), sorted(names))
    return hint if hint.startswith("did") else "paths are looked for beside the pipeline's file"
