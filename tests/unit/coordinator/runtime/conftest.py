"""A single broker for each test, as the handlers' tests have it."""

from __future__ import annotations

from unit.broker.conftest import broker as broker
from unit.broker.conftest import start_broker as start_broker
