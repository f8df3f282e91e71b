"""A client of the brokers as the options describe it, for the driver and for the workers."""

from __future__ import annotations

import numpy as np

from flintmq.arrow.scan.options import SourceOptions
from flintmq.client.cluster import ClusterClient
from flintmq.client.retries import delay_s


def client_of(options: SourceOptions) -> ClusterClient:
    return ClusterClient(
        options.bootstrap,
        client_id=options.client_id,
        request_timeout_s=options.request_timeout_ms / 1000,
        attempts=attempts_within(options.patience_ms / 1000),
        allocate=_uninitialized,
        security=options.security,
    )


def attempts_within(seconds: float) -> int:
    """How often to try, so that the waits between the attempts last about as long."""
    attempts, waited = 1, 0.0
    while waited + delay_s(attempts) <= seconds:
        waited += delay_s(attempts)
        attempts += 1
    return attempts


def _uninitialized(size: int) -> memoryview:
    """A buffer that is not filled with zeros, for fetches of many megabytes."""
    return np.empty(size, np.uint8).data
