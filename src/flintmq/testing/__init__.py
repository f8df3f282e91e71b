"""A broker for the tests of other people's code: see `docs/testing.md`.

    broker.Broker     the broker and everything a test may do with it
    plugin            the same as pytest fixtures
    faults            the script of what goes wrong; interceptor, fault_plan and error_responses carry it out
    clock             the broker's wall time
    snapshot          its state, taken and put back

Names are loaded when first used, because pytest imports this package in every run, used or not.
A top layer like `cli`: nothing in the broker knows that it exists.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flintmq.testing.broker import Broker
    from flintmq.testing.broker_state import Record
    from flintmq.testing.clock import ControlledClock
    from flintmq.testing.faults import Fault, Faults
    from flintmq.testing.request_log import RequestLog, SeenRequest
    from flintmq.testing.snapshot import Snapshot

_HOMES = {
    "Broker": "broker",
    "ControlledClock": "clock",
    "Fault": "faults",
    "Faults": "faults",
    "Record": "broker_state",
    "RequestLog": "request_log",
    "SeenRequest": "request_log",
    "Snapshot": "snapshot",
}

__all__ = [
    "Broker",
    "ControlledClock",
    "Fault",
    "Faults",
    "Record",
    "RequestLog",
    "SeenRequest",
    "Snapshot",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
