"""Real brokers under attack, each watched by a healthy client. See `support.broker.hostile`.

All tests of this folder share one worker: two attacks side by side would disturb each other's figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.broker.broker_process import BrokerProcess
from support.broker.hostile import needs_proc

FOLDER = Path(__file__).parent
QUIET = ("--set", "flint.rest.port=-1", "--set", "auto.create.topics.enable=false")
"""No port that another broker may have, and no topics but those that a test makes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("hostile"))
            item.add_marker(needs_proc)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests of a module; each has topics of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("hostile") / "data", QUIET) as started:
        yield started


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """For a test whose figures must not depend on what was done before."""
    with BrokerProcess(tmp_path / "data", QUIET) as started:
        yield started
