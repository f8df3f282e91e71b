"""Real brokers for tests that need one.

    def test_…(broker):                 one broker on a free port
    def test_…(start_broker):           any number: start_broker("--set", "num.partitions=3")

At the end of the test every broker that still runs is stopped with SIGTERM and must exit with 0. A test that
fails shows the end of its brokers' standard error.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.broker.broker_process import BrokerProcess, StartBroker
from support.clients.foreign_programs import COMMANDS, ClientCommand, Command

_BROKERS = pytest.StashKey[list[BrokerProcess]]()


@pytest.fixture
def start_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartBroker]:
    brokers = request.node.stash.setdefault(_BROKERS, [])

    def start(
        *args: str, env: Mapping[str, str] | None = None, data_dir: Path | None = None
    ) -> BrokerProcess:
        folder = data_dir or tmp_path / f"broker-{len(brokers)}"
        broker = BrokerProcess(folder, args, env=env)
        brokers.append(broker)
        return broker.start()

    yield start
    with ExitStack() as ends:
        for broker in brokers:
            ends.callback(broker.close)
        for broker in brokers:
            if broker.is_running:
                code = broker.stop()
                assert code == 0, f"the broker ended with code {code}:\n{broker.errors}"


@pytest.fixture(scope="session")
def client_command(tmp_path_factory: pytest.TempPathFactory) -> ClientCommand:
    """Build the program of a client when it is first asked for, once in a run."""
    folder = tmp_path_factory.mktemp("programs")
    built: dict[str, Command] = {}

    def get(client: str) -> Command:
        if client not in built:
            built[client] = COMMANDS[client](folder)
        return built[client]

    return get


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for broker in item.stash.get(_BROKERS, []):
            report.sections.append((f"standard error of the broker in {broker.data_dir}", broker.errors))
    return report
