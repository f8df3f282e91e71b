"""Kafka clients of other languages, as real programs against a real broker (B1, F3, Z3, F10).

The programs are in `tests/clients/`. Each is started once and then runs a scenario for every line it is given,
with checks of its own; `write` and `read` deal in records that all programs know, so that any of them can be
asked to read what another one wrote. A program whose toolchain or packages are missing is skipped, loudly;
`.ci/run` fetches what they need.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest

from support.broker.broker_process import BrokerProcess
from support.clients.foreign_programs import ClientCommand, Program
from support.clients.kafka_clients import Confluent, Message

# The programs and the broker are started once, so all of these belong into one worker.
pytestmark = pytest.mark.xdist_group("foreign-clients")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# librdkafka has zstd only where it was built with its library; the Python tests show it.
BUILT_CODECS = ("none", "gzip", "snappy", "lz4")


@dataclass(frozen=True)
class Client:
    scenarios: tuple[str, ...]
    writes: tuple[str, ...] = CODECS
    reads: tuple[str, ...] = CODECS


CLIENTS = {
    "java": Client(
        (
            *("read-committed", "seek", "times", "header-without-value", "acks", "many-partitions"),
            *("long-poll", "too-large", "topics", "recreate", "configs", "broker-configs", "delete-records"),
            *("list-offsets", "cluster", "log-dirs", "producers", "leaders"),
            *("transactions", "transaction-fenced", "transaction-timed-out", "transaction-offsets"),
            *("transaction-of-a-zombie", "transaction-admin", "transaction-hanging"),
        ),
    ),
    "franz-go": Client(
        (
            *("read-committed", "seek", "acks", "many-partitions", "long-poll", "too-large"),
            *("unknown-topic", "versions", "topics", "recreate", "configs", "delete-records", "list-offsets"),
            *("leader-epochs", "cluster", "log-dirs", "producers", "leaders"),
            *("transactions", "transaction-fenced", "transaction-offsets", "transaction-admin"),
            "transaction-versions",
        ),
    ),
    "segmentio": Client(("seek", "too-large", "topics", "configs", "list-offsets")),
    "kafkajs": Client(
        (
            *("idempotent", "acks", "too-large", "topics", "configs", "list-offsets", "delete-records"),
            *("cluster", "leaders", "versions", "transactions", "transaction-offsets"),
        ),
        writes=("none", "gzip"),
        reads=(),
    ),
    "confluent-javascript": Client(
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


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as started:
        yield started


@pytest.fixture(scope="module")
def program(
    broker: BrokerProcess, client_command: ClientCommand, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Program]]:
    """The program of a client, started when it is first asked for."""
    folder = tmp_path_factory.mktemp("programs")
    running: dict[str, Program] = {}

    def get(client: str) -> Program:
        if client not in running:
            running[client] = Program(client_command(client), broker.address, folder / f"{client}.stderr")
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
