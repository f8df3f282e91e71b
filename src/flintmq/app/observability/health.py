"""Whether a broker is ready, and if not or not quite, why. Pure.

Some reasons keep clients away (`/health/ready` answers 503): there is nothing they could do here. Others are
for operators: one log of many that is offline, or a disk that fills, would only become worse for everybody if
the whole broker were taken out of service.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

DISK_FREE_RATIO_MIN = 0.05
_NAMES_MAX = 10


class Phase(Enum):
    STARTING = "starting"
    RECOVERING = "recovering"
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class HealthReason:
    name: str
    detail: str
    blocks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What is to be judged."""

    phase: Phase
    logs_opened: int = 0
    logs_assigned: int = 0
    logs_offline: Sequence[str] = ()
    disk_free_bytes: int = 0
    disk_total_bytes: int = 0
    metadata_failure: str | None = None


def reasons_against(condition: Condition) -> list[HealthReason]:
    """Empty if all is well."""
    reasons = []
    phase = condition.phase
    if phase is Phase.STARTING:
        reasons.append(HealthReason("starting", "The data folder and the metadata are being opened.", True))
    elif phase is Phase.RECOVERING:
        words = f"{condition.logs_opened} of {condition.logs_assigned} logs are open."
        reasons.append(HealthReason("recovering", words, True))
    elif phase is Phase.STOPPING:
        reasons.append(HealthReason("stopping", "What is under way is finished, nothing new is taken.", True))
    if condition.metadata_failure is not None:
        reasons.append(HealthReason("metadata_failed", condition.metadata_failure, True))
    offline = condition.logs_offline
    if offline:
        names = ", ".join(offline[:_NAMES_MAX]) + (", …" if len(offline) > _NAMES_MAX else "")
        # With none left to serve there is no reason to come here.
        blocks = phase is Phase.RUNNING and len(offline) == condition.logs_opened
        reasons.append(HealthReason("log_offline", f"{len(offline)} logs serve nothing: {names}", blocks))
    free, total = condition.disk_free_bytes, condition.disk_total_bytes
    if total and free < total * DISK_FREE_RATIO_MIN:
        reasons.append(HealthReason("disk_nearly_full", f"{free} of {total} bytes are free.", False))
    return reasons


def is_ready(reasons: Sequence[HealthReason]) -> bool:
    return not any(reason.blocks for reason in reasons)


def status_of(reasons: Sequence[HealthReason]) -> str:
    if not reasons:
        return "ready"
    return "degraded" if is_ready(reasons) else "not ready"
