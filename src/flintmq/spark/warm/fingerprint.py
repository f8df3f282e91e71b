"""What a session's server and the commands that use it must have in common, or results could differ.

    differences(state.fingerprint, take_fingerprint(os.environ))     # ["AWS_PROFILE", "the jars of PySpark"]

Workers of the server import FlintMQ, PySpark and everything else by themselves, and find credentials, proxies and
time zones in the server's environment. Invariant: values of variables are kept as digests only, for some are secrets.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Final

from flintmq import __version__

_PREFIXES: Final = ("AWS_", "AZURE_", "GOOGLE_", "HADOOP_", "PYSPARK_", "PYTHON", "SPARK_")
_NAMES: Final = frozenset(
    (
        "FLINTMQ_COMPILED",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "JAVA_HOME",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "NO_PROXY",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TMPDIR",
        "TZ",
    )
)
_DIGEST_CHARS: Final = 16


def take_fingerprint(environment: Mapping[str, str]) -> dict[str, str]:
    """Of this process; `environment` as it was when the process began. The names are words for people."""
    found = {
        "the version of Python": sys.version.split()[0],
        "the Python interpreter": sys.executable,
        "the version of FlintMQ": __version__,
        "the code of FlintMQ": _digest(_files(_directory("flintmq"), ".py")),
        "the jars of PySpark": _digest(_files(os.path.join(_directory("pyspark"), "jars"), ".jar")),
        "the installed PySpark": _directory("pyspark"),
    }
    for name, value in environment.items():
        # Proxies are spelled both ways.
        if name.startswith(_PREFIXES) or name.upper() in _NAMES:
            found[name] = _digest((value,))
    return found


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    return sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))


def _directory(package: str) -> str:
    spec = find_spec(package)
    return os.path.dirname(spec.origin) if spec is not None and spec.origin else ""


def _files(directory: str, suffix: str) -> Iterator[str]:
    """Names, sizes and times of the files below a directory."""
    for parent, directories, names in os.walk(directory):
        directories.sort()
        for name in sorted(names):
            if name.endswith(suffix):
                path = os.path.join(parent, name)
                about = os.stat(path)
                yield f"{path} {about.st_size} {about.st_mtime_ns}"


def _digest(texts: Iterator[str] | tuple[str, ...]) -> str:
    made = hashlib.sha256()
    for text in texts:
        made.update(text.encode(errors="surrogateescape") + b"\0")
    return made.hexdigest()[:_DIGEST_CHARS]
