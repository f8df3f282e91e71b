"""Brokers of `flintmq.testing`, without its pytest plugin: that one is tested apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flintmq.testing import Broker
from support.wire.wire import Wire


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as connected:
        yield connected
