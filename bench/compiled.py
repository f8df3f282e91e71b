"""FlintMQ as its compiled wheels have it: built from a checkout, unpacked into a folder to run from.

Where there is no C compiler, or nothing to build a wheel with, CannotBuild says which.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

CHECKOUT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_BUILD_TIMEOUT_S: Final = 600
_COMPILERS: Final = ("cc", "gcc", "clang")


class CannotBuild(Exception):
    """The message says what is missing."""


def build_wheel(folder: str, *, compiled: bool, checkout: str = CHECKOUT) -> str:
    """Build a wheel of `checkout` in `folder` and return its path; fetch build dependencies not in a cache."""
    if compiled and not (os.environ.get("CC") or any(map(shutil.which, _COMPILERS))):
        raise CannotBuild("a C compiler")
    environment = {**os.environ, "FLINTMQ_COMPILE": "1" if compiled else "0"}
    done = subprocess.run(
        [*_builder(folder), checkout],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_BUILD_TIMEOUT_S,
    )
    if done.returncode != 0:
        raise RuntimeError(f"The wheel could not be built:\n{(done.stdout + done.stderr)[-4000:]}")
    (name,) = (name for name in os.listdir(folder) if name.endswith(".whl"))
    return os.path.join(folder, name)


def unpack(wheel: str, folder: str) -> str:
    """The folder to put first on the path of a Python that has FlintMQ's dependencies."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@contextmanager
def compiled_package(checkout: str = CHECKOUT) -> Iterator[str]:
    """A directory with FlintMQ as its compiled wheels have it, which is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="flintmq-wheel-") as folder:
        yield unpack(build_wheel(folder, compiled=True, checkout=checkout), os.path.join(folder, "package"))


def _builder(folder: str) -> list[str]:
    if (uv := shutil.which("uv")) is not None:
        return [uv, "build", "--wheel", "--python", sys.executable, "--out-dir", folder]
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder]
    raise CannotBuild("uv or pip")
