"""A single broker for each test of the handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop
from support.broker.single_broker import SEED, SingleBroker

StartBroker = Callable[..., SingleBroker]


@pytest.fixture
def start_broker() -> Iterator[StartBroker]:
    """Start a broker with settings by name and limits as SingleBroker takes them; stop it after the test."""
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        brokers: list[SingleBroker] = []

        def start(
            settings: Mapping[str, str] | None = None, disk: SimulatedDisk | None = None, **limits: Any
        ) -> SingleBroker:
            values = {"log.message.timestamp.before.max.ms": str(2**62), **(settings or {})}
            brokers.append(SingleBroker(loop, values, disk or SimulatedDisk(seed=SEED), **limits))
            return brokers[-1]

        yield start
        for broker in brokers:
            broker.close()


@pytest.fixture
def broker(start_broker: StartBroker) -> SingleBroker:
    return start_broker()
