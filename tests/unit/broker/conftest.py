"""A single broker for each test of the handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

import pytest

from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop
from support.broker.single_broker import SEED, SingleBroker

StartBroker = Callable[..., SingleBroker]


@pytest.fixture
def start_broker() -> Iterator[StartBroker]:
    """Starts a broker with the settings given by their names, and stops it after the test."""
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        brokers: list[SingleBroker] = []

        def start(
            settings: Mapping[str, str] | None = None, disk: SimulatedDisk | None = None
        ) -> SingleBroker:
            values = {"log.message.timestamp.before.max.ms": str(2**62), **(settings or {})}
            brokers.append(SingleBroker(loop, values, disk or SimulatedDisk(seed=SEED)))
            return brokers[-1]

        yield start
        for broker in brokers:
            broker.close()


@pytest.fixture
def broker(start_broker: StartBroker) -> SingleBroker:
    return start_broker()
