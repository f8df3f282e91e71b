"""Tests that begin where an expensive preparation ended."""

from __future__ import annotations

import pytest

from flintmq.testing import Broker, Snapshot


@pytest.fixture(scope="session")
def shop(flintmq_session_broker: Broker) -> Snapshot:
    """A catalogue that takes long to fill, filled once."""
    flintmq_session_broker.create_topic("catalogue", configs={"cleanup.policy": "compact"})
    for number in range(1000):
        flintmq_session_broker.produce("catalogue", f"article {number}", key=str(number))
    return flintmq_session_broker.snapshot()


def test_an_article_is_withdrawn(flintmq_session_broker: Broker, shop: Snapshot) -> None:
    flintmq_session_broker.restore(shop)
    flintmq_session_broker.produce("catalogue", None, key="7")
    assert len(flintmq_session_broker.records("catalogue")) == 1001


def test_no_test_sees_what_another_did(flintmq_session_broker: Broker, shop: Snapshot) -> None:
    flintmq_session_broker.restore(shop)
    assert len(flintmq_session_broker.records("catalogue")) == 1000
