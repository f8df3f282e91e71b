"""The programs of `tests/clients/` as processes: how each is built and started, and how it is asked for a scenario.

Whoever needs one asks the fixture `client_command`, which builds each of them once in a test run. A program whose
toolchain or packages are missing is skipped; `.ci/run` fetches what they need.
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "clients"
ANSWER_TIMEOUT_S = 60.0
ERROR_TAIL_BYTES = 4 * 1024

MAVEN = Path.home() / ".m2" / "repository"
JARS = (
    "org/apache/kafka/kafka-clients/4.3.1/kafka-clients-4.3.1.jar",
    "org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar",
    "at/yawk/lz4/lz4-java/1.10.2/lz4-java-1.10.2.jar",
    "org/xerial/snappy/snappy-java/1.1.10.7/snappy-java-1.1.10.7.jar",
    "com/github/luben/zstd-jni/1.5.6-10/zstd-jni-1.5.6-10.jar",
)


@dataclass(frozen=True)
class Command:
    """How a program is started, but for the broker's address."""

    words: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"toolchain: {name} is not installed")
    return found


def _java(folder: Path) -> Command:
    java, javac = tool("java"), tool("javac")
    missing = [Path(jar).name for jar in JARS if not (MAVEN / jar).exists()]
    if missing:
        pytest.skip(f"toolchain: not in the local Maven repository: {', '.join(missing)}")
    path = os.pathsep.join(str(MAVEN / jar) for jar in JARS)
    sources = [str(SOURCES / "java" / f"{name}.java") for name in ("KafkaClients", "Transactions")]
    built = subprocess.run(
        [javac, "-d", str(folder), "-cp", path, *sources], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
    return Command((java, *options, "-cp", os.pathsep.join((str(folder), path)), "KafkaClients"))


def _go(package: str) -> Callable[[Path], Command]:
    def build(folder: Path) -> Command:
        go, source = tool("go"), SOURCES / "go"
        offline = {**os.environ, "GOPROXY": "off"}
        fetched = subprocess.run(
            [go, "mod", "download"], cwd=source, env=offline, capture_output=True, text=True, check=False
        )
        if fetched.returncode != 0:
            pytest.skip(f"toolchain: Go modules are missing: {fetched.stderr.strip().splitlines()[-1]}")
        program = folder / package
        built = subprocess.run(
            [go, "build", "-o", str(program), f"./{package}"],
            cwd=source,
            env=offline,
            capture_output=True,
            text=True,
            check=False,
        )
        assert built.returncode == 0, built.stderr
        return Command((str(program),))

    return build


def _node(program: str, package: str) -> Callable[[Path], Command]:
    def find(_: Path) -> Command:
        node, source = tool("node"), SOURCES / "javascript"
        found = subprocess.run(
            [node, str(source / "packages.js"), package], capture_output=True, text=True, check=False
        )
        if found.returncode != 0:
            pytest.skip(f"toolchain: {package} is not installed (see tests/clients/javascript/packages.js)")
        return Command((node, str(source / program)), {"NODE_PATH": found.stdout.strip()})

    return find


COMMANDS: dict[str, Callable[[Path], Command]] = {
    "java": _java,
    "franz-go": _go("franz"),
    "segmentio": _go("segmentio"),
    "kafkajs": _node("kafkajs.js", "kafkajs"),
    "confluent-javascript": _node("confluent.js", "@confluentinc/kafka-javascript"),
}
"""By client: given a folder for what it compiles; skips where the toolchain is missing."""


ClientCommand = Callable[[str], Command]
"""The fixture `client_command`: how the program of a client is started."""


class Program:
    """A running program. Invariant: one answer for each line."""

    def __init__(self, command: Command, address: str, errors: Path) -> None:
        self.errors = errors
        with errors.open("wb") as log:
            self._process = subprocess.Popen(
                [*command.words, address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
                env={**os.environ, **command.env},
            )
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line.rstrip("\n"))
        self._answers.put(None)

    def ask(self, scenario: str, topic: str, option: str = "") -> str:
        """What it answers: "ok", or what failed."""
        assert self._process.stdin is not None
        if self._process.poll() is None:
            self._process.stdin.write(f"{scenario} {topic} {option}".rstrip() + "\n")
        try:
            answer = self._answers.get(timeout=ANSWER_TIMEOUT_S)
        except queue.Empty:
            self._process.kill()
            answer = f"no answer within {ANSWER_TIMEOUT_S} s"
        if answer is None:
            self._answers.put(None)
            answer = f"the program ended with code {self._process.wait()}"
        return answer

    def run(self, scenario: str, topic: str, option: str = "") -> None:
        answer = self.ask(scenario, topic, option)
        assert answer == "ok", f"{answer}\n{self._error_tail()}"

    def _error_tail(self) -> str:
        return self.errors.read_bytes()[-ERROR_TAIL_BYTES:].decode(errors="replace")

    def close(self) -> None:
        """Its input ends, and so does it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(ANSWER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
