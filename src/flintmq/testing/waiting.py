"""Waiting in the test's thread for something that happens in the broker's."""

from __future__ import annotations

import threading
from collections.abc import Callable

TIMEOUT_S = 10.0


def wait_until(
    condition: threading.Condition,
    is_so: Callable[[], bool],
    timeout_s: float,
    complaint: Callable[[], str],
) -> None:
    """Return once `is_so`, which changes only under `condition`; TimeoutError with the complaint if it does not."""
    with condition:
        if not condition.wait_for(is_so, timeout_s):
            raise TimeoutError(complaint())
