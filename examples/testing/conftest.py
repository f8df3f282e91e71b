"""Settings for the brokers of all tests in this folder."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def flintmq_settings() -> dict[str, object]:
    return {"num.partitions": 3, "message.max.bytes": 100_000}
