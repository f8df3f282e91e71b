"""The real command, and a broker that the tests of one module share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from support.broker.broker_process import BrokerProcess
from support.cli.command import Flintmq, Ran, run


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("command-line") / "data") as broker:
        yield broker


@pytest.fixture
def flintmq(shared_broker: BrokerProcess) -> Flintmq:
    """The command, told where the broker is."""

    def told(*args: str, stdin: bytes = b"", code: int = 0, env: Mapping[str, str] | None = None) -> Ran:
        return run(
            *args,
            stdin=stdin,
            code=code,
            env={"FLINTMQ_BOOTSTRAP_SERVERS": shared_broker.address, **(env or {})},
        )

    return told


@pytest.fixture
def topic(flintmq: Flintmq, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    name = str(request.node.name).replace("[", ".").replace("]", "")[:200]
    flintmq("topic", "create", name, "--partitions", "1")
    return name
