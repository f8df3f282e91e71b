"""The brokers that are compared: how each is prepared in an empty folder, and the command that starts it.

Both run with their defaults. Kafka's few settings here are those that a single node cannot do without.
Nothing here starts a broker or looks at one: that is `process`.
"""

from __future__ import annotations

import base64
import os
import shlex
import shutil
import subprocess
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.tls import TlsFiles
from bench.wire import Connection

KAFKA_VERSION: Final = "4.3.1"
KAFKA_CORE_JAR: Final = f"kafka_2.13-{KAFKA_VERSION}.jar"
JAVA_OPTIONS: Final = (
    "-Xmx1g -Xms1g -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35"
)
"""What Kafka's own start scripts give its JVM; left to itself on one core it would choose another collector."""

_HERE: Final = os.path.dirname(os.path.abspath(__file__))
_FETCH_TIMEOUT_S: Final = 600
_FORMAT_TIMEOUT_S: Final = 120


class CannotRun(Exception):
    """A broker that cannot be run here; the message says why."""


@dataclass(frozen=True, slots=True)
class BrokerHome:
    """Where one broker lives: a directory of its own and ports that were free a moment ago."""

    folder: str
    port: int
    second_port: int
    tls_port: int
    tls: TlsFiles | None = field(default=None, kw_only=True)
    """For a listener with TLS on `tls_port`, beside the one in plain text; None for no such listener."""


class Peer(ABC):
    name: str
    is_partial: bool = False
    """Whether it cannot do everything that a Kafka broker does: workloads that fail are left out, and no error."""

    @abstractmethod
    def prepare(self, home: BrokerHome) -> None:
        """Make ready what must exist before the first start."""

    @abstractmethod
    def command(self, home: BrokerHome) -> Sequence[str]: ...

    @abstractmethod
    def environment(self) -> Mapping[str, str]: ...

    def configure(self, connection: Connection) -> None:
        """Change what must be changed on a broker that runs; called after every start."""
        return


class FlintPeer(Peer):
    def __init__(
        self, package: str | None = None, *, python: str = sys.executable, name: str = "FlintMQ"
    ) -> None:
        """Run the sources that `python` has installed, or `package`, a directory with an unpacked wheel."""
        self.name = name
        self._package = package
        self._python = python

    def prepare(self, home: BrokerHome) -> None:
        os.makedirs(home.folder, exist_ok=True)

    def command(self, home: BrokerHome) -> Sequence[str]:
        data = os.path.join(home.folder, "data")
        command = [self._python, "-m", "flintmq", "serve", "--data-dir", data]
        if home.tls is None:
            return [*command, "--port", str(home.port)]
        settings = {"listeners": _listeners(home), **_tls_settings(home.tls)}
        return [
            *command,
            *(part for name, value in settings.items() for part in ("--set", f"{name}={value}")),
        ]

    def environment(self) -> Mapping[str, str]:
        # The shell's own settings would make two runs differ, and so would a start without bytecode.
        found = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("FLINTMQ_") and name != "PYTHONDONTWRITEBYTECODE"
        }
        return found if self._package is None else {**found, "PYTHONPATH": self._package}


class CheckoutPeer(FlintPeer):
    """FlintMQ of another checkout, run by that checkout's own `.venv`."""

    def __init__(self, name: str, checkout: str, package: str | None = None) -> None:
        self.checkout = os.path.abspath(checkout)
        python = os.path.join(self.checkout, ".venv", "bin", "python")
        if not os.access(python, os.X_OK):
            raise CannotRun(f"{checkout} has no .venv; ./flint test --version makes one there")
        super().__init__(package, python=python, name=name)

    def environment(self) -> Mapping[str, str]:
        environment = dict(super().environment())
        if self._package is None:
            # A path to this checkout's sources would come before those of the other one.
            environment.pop("PYTHONPATH", None)
        return environment

    def version(self) -> str:
        """Return the version of the code that the broker runs, and the directory it is imported from."""
        code = "import flintmq, os; print(flintmq.__version__, 'of', os.path.dirname(flintmq.__file__))"
        done = subprocess.run(
            [self._python, "-c", code], env=self.environment(), capture_output=True, text=True, timeout=60
        )
        if done.returncode != 0:
            raise CannotRun(f"{self.checkout} does not run:\n{_end_of(done)}")
        return done.stdout.strip()


class KfakePeer(Peer):
    """franz-go's broker for tests, in Go, in memory alone: what a broker costs that writes no file."""

    name = "kfake"
    is_partial = True

    def __init__(self, program: str) -> None:
        self._program = program

    @classmethod
    def built(cls, folder: str) -> KfakePeer:
        go = shutil.which("go")
        if go is None:
            raise CannotRun("go is not here to build kfake with")
        program = os.path.join(folder, "kfake")
        done = subprocess.run(
            [go, "build", "-o", program, "."],
            cwd=os.path.join(_HERE, "kfake"),
            capture_output=True,
            text=True,
            timeout=_FETCH_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise CannotRun(f"kfake could not be built:\n{_end_of(done)}")
        return cls(program)

    def prepare(self, home: BrokerHome) -> None:
        os.makedirs(home.folder, exist_ok=True)

    def command(self, home: BrokerHome) -> Sequence[str]:
        return [self._program, str(home.port)]

    def environment(self) -> Mapping[str, str]:
        return dict(os.environ)


class KafkaPeer(Peer):
    name = "Kafka"

    def __init__(self, *, java: str, libs: str, java_options: str = JAVA_OPTIONS) -> None:
        self._java = [java, *shlex.split(java_options), "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        self._libs = libs

    @classmethod
    def found(cls, java_options: str = JAVA_OPTIONS) -> KafkaPeer:
        """With the Java and the jars of this machine; jars that are not here are fetched with Maven."""
        java = shutil.which("java")
        if java is None:
            raise CannotRun("Java is not installed (17 or newer is needed)")
        libs = kafka_libs()
        if not os.path.exists(os.path.join(libs, KAFKA_CORE_JAR)):
            fetch_kafka(libs)
        return cls(java=java, libs=libs, java_options=java_options)

    def prepare(self, home: BrokerHome) -> None:
        os.makedirs(home.folder, exist_ok=True)
        with open(_properties(home), "w") as file:
            file.write(self.settings(home))
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        arguments = ["--standalone", f"--cluster-id={cluster_id}", "--config", _properties(home)]
        done = subprocess.run(
            [*self._java, "kafka.tools.StorageTool", "format", *arguments],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=_FORMAT_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise CannotRun(f"Kafka could not format its folder:\n{_end_of(done)}")

    def settings(self, home: BrokerHome) -> str:
        """The properties file; where a name stands twice, the last one counts."""
        return kafka_settings(home)

    def command(self, home: BrokerHome) -> Sequence[str]:
        return [*self._java, "kafka.Kafka", _properties(home)]

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "CLASSPATH": os.path.join(self._libs, "*")}


def kafka_libs() -> str:
    """The folder with Kafka's jars: `$KAFKA_LIBS`, or a place in the cache that other test suites share."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("KAFKA_LIBS") or os.path.join(
        cache, "flintmq-suites", f"kafka-{KAFKA_VERSION}", "lib"
    )


def fetch_kafka(libs: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotRun(f"{libs} has no {KAFKA_CORE_JAR}, and Maven is not installed to fetch it")
    command = [maven, "-q", "-B", "-f", os.path.join(_HERE, "pom.xml"), "dependency:copy-dependencies"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={libs}"], capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S
    )
    if done.returncode != 0:
        raise CannotRun(f"Maven could not fetch Kafka {KAFKA_VERSION}:\n{_end_of(done)}")


def kafka_settings(home: BrokerHome) -> str:
    """One node that is broker and controller; internal topics with one replica, since there is one node."""
    listeners = f"{_listeners(home)},CONTROLLER://127.0.0.1:{home.second_port}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "0",
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{home.second_port}",
        "log.dirs": os.path.join(home.folder, "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        # As in the files that Kafka ships for one node; FlintMQ's own default.
        "group.initial.rebalance.delay.ms": "0",
    }
    if home.tls is not None:
        settings |= {"ssl.keystore.type": "PEM", **_tls_settings(home.tls)}
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _listeners(home: BrokerHome) -> str:
    plain = f"PLAINTEXT://127.0.0.1:{home.port}"
    return plain if home.tls is None else f"{plain},SSL://127.0.0.1:{home.tls_port}"


def _tls_settings(files: TlsFiles) -> dict[str, str]:
    return {"ssl.keystore.location": files.server}


def _end_of(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stdout + done.stderr)[-1000:]


def _properties(home: BrokerHome) -> str:
    return os.path.join(home.folder, "server.properties")
