"""Functions and classes of the user's own files.

Invariant: a file is run once for a pipeline, as a module that workers need not have: what it defines is pickled by
value. What goes wrong in it is told with its line.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import traceback
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from flintmq.pipeline.spec.problems import PipelineError, Problem, Rule
from flintmq.pipeline.spec.source_map import Place, place_of


def load_reference(reference: str, path: str, place: Place) -> Any:
    """What `file.py:name` names; `path` is where the file is."""
    name = reference.rpartition(":")[2]
    where = place_of(reference, place)
    try:
        module = _module(path)
    except Exception as error:  # whatever the user's code raises when it is run
        raise PipelineError(
            [Problem(Rule.PYTHON, where, f"{path}: {describe_error(error, path)}")]
        ) from error
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise PipelineError([Problem(Rule.PYTHON, where, f"{path} has no `{name}`")])
    return found


def describe_error(error: BaseException, path: str) -> str:
    """What was raised, and the last line of the user's file that was on the way."""
    here = os.path.abspath(path)
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.abspath(frame.filename) == here
    ]
    line = f"line {lines[-1]}: " if lines else ""
    return f"{line}{type(error).__name__}: {error}"


def _module(path: str) -> ModuleType:
    full = os.path.abspath(path)
    digest = hashlib.sha256(full.encode()).hexdigest()[:8]
    name = f"_flintmq_{os.path.basename(full).removesuffix('.py')}_{digest}"
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Files beside it may be imported by it, on the driver.
    folder = os.path.dirname(full)
    is_new = folder not in sys.path
    if is_new:
        sys.path.insert(0, folder)
    try:
        sys.modules[name] = module
        spec.loader.exec_module(module)
    finally:
        if is_new:
            sys.path.remove(folder)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
