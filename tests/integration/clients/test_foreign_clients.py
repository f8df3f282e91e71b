"""Kafka clients of other languages, as real programs against a real broker (B1, F3, Z3, F10).

The programs are in `tests/clients/`. Each is started once and then runs a scenario for every line it is given,
with checks of its own; `write` and `read` deal in records that all programs know, so that any of them can be
asked to read what another one wrote. A program whose toolchain or packages are missing is skipped, loudly;
`.ci/run` fetches what they need.
"""

from __future__ import annotations

import dataclasses
import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest

from support.broker.broker_process import BrokerProcess
from support.clients.kafka_clients import Confluent, Message

# The programs and the broker are started once, so all of these belong into one worker.
pytestmark = pytest.mark.xdist_group("foreign-clients")

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

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# librdkafka has zstd only where it was built with its library; the Python tests show it.
BUILT_CODECS = ("none", "gzip", "snappy", "lz4")


# ---- the programs


@dataclass(frozen=True)
class Command:
    """How a program is started, but for the broker's address."""

    words: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Client:
    command: Callable[[Path], Command]
    """Given a folder for what it compiles; skips where the toolchain is missing."""
    scenarios: tuple[str, ...]
    writes: tuple[str, ...] = CODECS
    reads: tuple[str, ...] = CODECS


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"toolchain: {name} is not installed")
    return found


def java(folder: Path) -> Command:
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


def go(package: str) -> Callable[[Path], Command]:
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


def node(program: str, package: str) -> Callable[[Path], Command]:
    def find(_: Path) -> Command:
        node, source = tool("node"), SOURCES / "javascript"
        found = subprocess.run(
            [node, str(source / "packages.js"), package], capture_output=True, text=True, check=False
        )
        if found.returncode != 0:
            pytest.skip(f"toolchain: {package} is not installed (see tests/clients/javascript/packages.js)")
        return Command((node, str(source / program)), {"NODE_PATH": found.stdout.strip()})

    return find


CLIENTS = {
    "java": Client(
        java,
        (
            *("read-committed", "seek", "times", "header-without-value", "acks", "many-partitions"),
            *("long-poll", "too-large", "topics", "recreate", "configs", "broker-configs", "delete-records"),
            *("list-offsets", "cluster", "log-dirs", "producers", "leaders"),
            *("transactions", "transaction-fenced", "transaction-timed-out", "transaction-offsets"),
            *("transaction-of-a-zombie", "transaction-admin", "transaction-hanging"),
        ),
    ),
    "franz-go": Client(
        go("franz"),
        (
            *("read-committed", "seek", "acks", "many-partitions", "long-poll", "too-large"),
            *("unknown-topic", "versions", "topics", "recreate", "configs", "delete-records", "list-offsets"),
            *("leader-epochs", "cluster", "log-dirs", "producers", "leaders"),
            *("transactions", "transaction-fenced", "transaction-offsets", "transaction-admin"),
            "transaction-versions",
        ),
    ),
    "segmentio": Client(go("segmentio"), ("seek", "too-large", "topics", "configs", "list-offsets")),
    "kafkajs": Client(
        node("kafkajs.js", "kafkajs"),
        (
            *("idempotent", "acks", "too-large", "topics", "configs", "list-offsets", "delete-records"),
            *("cluster", "leaders", "versions", "transactions", "transaction-offsets"),
        ),
        writes=("none", "gzip"),
        reads=(),
    ),
    "confluent-javascript": Client(
        node("confluent.js", "@confluentinc/kafka-javascript"),
        (
            "seek",
            "too-large",
            "topics",
            "list-offsets",
            "delete-records",
            "transactions",
            "transaction-offsets",
        ),
        writes=BUILT_CODECS,
        reads=BUILT_CODECS,
    ),
}


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


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as started:
        yield started


@pytest.fixture(scope="module")
def program(
    broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Program]]:
    """The program of a client, started when it is first asked for."""
    folder = tmp_path_factory.mktemp("programs")
    running: dict[str, Program] = {}

    def get(client: str) -> Program:
        if client not in running:
            command = CLIENTS[client].command(folder)
            running[client] = Program(command, broker.address, folder / f"{client}.stderr")
        return running[client]

    yield get
    for one in running.values():
        one.close()


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4()}"


# ---- what they show


@pytest.mark.parametrize(
    ("client", "scenario"), [(name, one) for name, client in CLIENTS.items() for one in client.scenarios]
)
def test_scenario(program: Callable[[str], Program], topic: str, client: str, scenario: str) -> None:
    program(client).run(scenario, topic)


@pytest.mark.parametrize(
    ("writer", "reader", "codec"),
    [
        (writer, reader, codec)
        for writer in CLIENTS
        for reader in CLIENTS
        for codec in CLIENTS[writer].writes
        if codec in CLIENTS[reader].reads
    ],
)
def test_a_client_reads_what_another_wrote(
    program: Callable[[str], Program], topic: str, writer: str, reader: str, codec: str
) -> None:
    program(writer).run("write", topic, codec)
    program(reader).run("read", topic)


def sample() -> list[Message]:
    return [
        Message(
            None if i % 7 == 3 else b"value-%d " % i * (i % 10 + 1),
            None if i % 5 == 0 else b"key-%d" % i,
            1_700_000_000_000 + 10 * i,
            (("n", b"%d" % i), ("h", b"1"), ("h", b"2"), ("empty", b"")),
        )
        for i in range(100)
    ]


@pytest.mark.parametrize(
    ("reader", "codec"), [(name, codec) for name, client in CLIENTS.items() for codec in client.reads]
)
def test_a_client_reads_what_python_wrote(
    broker: BrokerProcess, program: Callable[[str], Program], topic: str, reader: str, codec: str
) -> None:
    Confluent().produce(broker.address, topic, sample(), **{"compression.type": codec})
    program(reader).run("read", topic)


@pytest.mark.parametrize(
    ("writer", "codec"), [(name, codec) for name, client in CLIENTS.items() for codec in client.writes]
)
def test_python_reads_what_a_client_wrote(
    broker: BrokerProcess, program: Callable[[str], Program], topic: str, writer: str, codec: str
) -> None:
    program(writer).run("write", topic, codec)
    found = Confluent().consume(broker.address, topic, 0, 100)
    assert found == sample()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_program_tells_an_unknown_scenario(
    program: Callable[[str], Program], topic: str, client: str
) -> None:
    assert "no scenario" in program(client).ask("nonsense", topic)


@pytest.mark.parametrize("reader", [name for name, client in CLIENTS.items() if client.reads])
def test_a_program_tells_records_that_are_not_the_sample(
    broker: BrokerProcess, program: Callable[[str], Program], topic: str, reader: str
) -> None:
    """Else the programs' word about all of the above would prove nothing."""
    *right, last = sample()
    wrong = dataclasses.replace(last, headers=(*last.headers[:-1], ("empty", b"x")))
    Confluent().produce(broker.address, topic, [*right, wrong])
    assert program(reader).ask("read", topic).startswith("failed")
