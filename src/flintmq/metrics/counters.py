"""Plain numbers that the code which does the work bumps as it goes.

An addition to a slot costs some fifty nanoseconds; a lookup by label, a lock or a library's counter costs ten
times that, and a small request takes no more than twenty microseconds in all. So each object here is at hand
where it is bumped, and labels are put on when somebody asks. All of it belongs to the event loop's thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Final

LATENCY_BOUNDS_S: Final = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0)
"""Upper ends of the buckets of every histogram; one more bucket takes what is above."""

Now = Callable[[], float]


class ApiCounters:
    """The requests of one API."""

    __slots__ = ("buckets", "bytes_in", "bytes_out", "errors", "now", "requests", "seconds")

    def __init__(self, now: Now) -> None:
        self.now = now
        """Seconds that never go back: what `began` of a request is taken from."""
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.errors: Counter[int] = Counter()
        """Requests by the wire codes of errors that their answers hold, once for each code."""

    def answered(self, began: float, size: int) -> None:
        """An answer of `size` bytes went to the connection; 0 for a request that has none."""
        elapsed_s = self.now() - began
        self.bytes_out += size
        self.seconds += elapsed_s
        self.buckets[bisect_left(LATENCY_BOUNDS_S, elapsed_s)] += 1


UNCOUNTED: Final = ApiCounters(lambda: 0.0)
"""For requests that nobody counts, so that no request must be asked whether somebody does."""


class ConnectionCounters:
    __slots__ = ("accepted", "refused")

    def __init__(self) -> None:
        self.accepted = 0
        self.refused: Counter[str] = Counter()
        """Connections that this side closed because of what the client did, by class of reason."""


class LogCounters:
    """All logs of one folder together."""

    __slots__ = (
        "buckets", "compaction_bytes", "compactions", "duplicates", "flush_failures", "flush_seconds",
        "records_deleted", "repaired_ranges", "retention_bytes", "scrubbed_bytes", "unsynced_deleted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.flush_seconds = 0.0
        self.flush_failures = 0
        self.buckets = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.duplicates = 0
        """Batches of idempotent producers that were in the log already."""
        self.records_deleted = 0
        self.retention_bytes = 0
        """Let go by age or size."""
        self.unsynced_deleted = 0
        """Records that retention deleted before a lake table had them."""
        self.compactions = 0
        self.compaction_bytes = 0
        """Read by compaction."""
        self.scrubbed_bytes = 0
        """Read by the scrub, and sound."""
        self.repaired_ranges = 0

    def flushed(self, elapsed_s: float) -> None:
        self.flush_seconds += elapsed_s
        self.buckets[bisect_left(LATENCY_BOUNDS_S, elapsed_s)] += 1


class TransactionCounters:
    __slots__ = ("markers_aborted", "markers_committed", "markers_retried")

    def __init__(self) -> None:
        self.markers_committed = 0
        self.markers_aborted = 0
        self.markers_retried = 0
        """Attempts that failed and were made again."""


class AuthenticationCounters:
    __slots__ = ("failed", "succeeded")

    def __init__(self) -> None:
        self.succeeded: Counter[str] = Counter()
        """By mechanism; re-authentications are counted too."""
        self.failed: Counter[str] = Counter()


class QuotaCounters:
    __slots__ = ("throttled", "throttled_seconds")

    def __init__(self) -> None:
        self.throttled: Counter[str] = Counter()
        """Requests and connections that were throttled, by the quota's name."""
        self.throttled_seconds: dict[str, float] = {}

    def add(self, quota: str, delay_ms: int) -> None:
        self.throttled[quota] += 1
        self.throttled_seconds[quota] = self.throttled_seconds.get(quota, 0.0) + delay_ms / 1000


class Counters:
    """Everything that one broker counts."""

    __slots__ = ("apis", "authentications", "connections", "denials", "logs", "quotas", "transactions")

    def __init__(self) -> None:
        self.apis: dict[str, ApiCounters] = {}
        """By Kafka's name of the API; filled by whoever dispatches."""
        self.authentications = AuthenticationCounters()
        self.connections = ConnectionCounters()
        self.denials: Counter[str] = Counter()
        """Requests for a resource that were denied, by Kafka's name of the operation."""
        self.logs = LogCounters()
        self.quotas = QuotaCounters()
        self.transactions = TransactionCounters()
