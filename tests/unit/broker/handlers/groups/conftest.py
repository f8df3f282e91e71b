"""A broker whose group coordinator is loaded."""

from __future__ import annotations

import pytest

from support.broker.single_broker import SingleBroker
from support.wire.group_requests import (
    TOPIC,
    find,
)


@pytest.fixture
def ready(broker: SingleBroker) -> SingleBroker:
    """With a topic, and the topic that groups live in, loaded."""
    broker.create(TOPIC, 2)
    find(broker)
    return broker
