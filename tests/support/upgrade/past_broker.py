"""`flintmq` with a wall clock that starts at a given time: stored transactions, offsets and producers do not expire.

with PastBroker(tmp_path / "data", stopped_at_ms) as broker: …

python -m support.upgrade.past_broker serve …
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from flintmq.cli.main import main
from flintmq.effects.real import SystemClock
from support.broker.broker_process import BrokerProcess

_VARIABLE = "FLINT_TEST_START_MS"
_EVER_MS = (1 << 63) - 1
_TESTS = Path(__file__).resolve().parents[2]


class PastBroker(BrokerProcess):
    def __init__(self, data_dir: Path, start_ms: int, args: Sequence[str] = ()) -> None:
        path = [str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        super().__init__(
            data_dir,
            # Clients live in the present, which is far in this broker's future.
            [*args, "--set", f"log.message.timestamp.after.max.ms={_EVER_MS}"],
            env={"PYTHONPATH": os.pathsep.join(path), _VARIABLE: str(start_ms)},
            program="support.upgrade.past_broker",
        )


def _set_clock(start_ms: int) -> None:
    behind_ms = time.time_ns() // 1_000_000 - start_ms

    def now_ms(self: SystemClock) -> int:
        return time.time_ns() // 1_000_000 - behind_ms

    SystemClock.now_ms = now_ms  # type: ignore[method-assign]


if __name__ == "__main__":
    _set_clock(int(os.environ[_VARIABLE]))
    main(prog_name="flintmq")
