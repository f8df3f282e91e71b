"""The pytest plugin: a broker as a fixture.

    def test_…(flintmq_broker):           one for this test
    def test_…(flintmq_session_broker):   one for the whole run, of each worker where there are several

A `conftest.py` may override the fixture `flintmq_settings` to configure both. Nothing is imported and nothing
started before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from flintmq.testing.broker import Broker


@pytest.fixture(scope="session")
def flintmq_settings() -> Mapping[str, object]:
    """The brokers' settings, by Kafka's names: override it to have others than the defaults."""
    return {}


@pytest.fixture
def flintmq_broker(flintmq_settings: Mapping[str, object]) -> Iterator[Broker]:
    """A FlintMQ broker of the test's own, on a free port."""
    from flintmq.testing.broker import Broker

    with Broker(flintmq_settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def flintmq_session_broker(flintmq_settings: Mapping[str, object]) -> Iterator[Broker]:
    """One FlintMQ broker for all tests: give each its own topics."""
    from flintmq.testing.broker import Broker

    with Broker(flintmq_settings) as broker:
        yield broker
