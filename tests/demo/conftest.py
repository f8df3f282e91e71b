"""The demo as a process of its own, in a session of its own, so that whatever it leaves can be found."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark is started by one test at a time, and has time for it on a busy machine."""
    for item in items:
        if "demo_tmp" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.timeout(400))
