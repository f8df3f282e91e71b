"""Whether a broker is ready, and why not (F12)."""

from __future__ import annotations

import pytest

from flintmq.app.observability.health import Condition, Phase, is_ready, reasons_against, status_of


def judged(condition: Condition) -> tuple[str, list[str]]:
    reasons = reasons_against(condition)
    assert is_ready(reasons) == (status_of(reasons) != "not ready")
    return status_of(reasons), [reason.name for reason in reasons]


def test_a_running_broker_is_ready() -> None:
    running = Condition(phase=Phase.RUNNING, logs_opened=3, disk_free_bytes=50, disk_total_bytes=100)
    assert judged(running) == ("ready", [])


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RECOVERING, Phase.STOPPING])
def test_only_a_running_broker_is_ready(phase: Phase) -> None:
    assert judged(Condition(phase=phase)) == ("not ready", [phase.value])


def test_recovery_says_how_far_it_is() -> None:
    (reason,) = reasons_against(Condition(phase=Phase.RECOVERING, logs_opened=12, logs_assigned=40))
    assert reason.detail == "12 of 40 logs are open."


def test_a_failed_metadata_store_is_a_reason_to_stay_away() -> None:
    condition = Condition(phase=Phase.RUNNING, metadata_failure="fsync failed")
    assert judged(condition) == ("not ready", ["metadata_failed"])


def test_one_log_offline_leaves_the_others_in_service_and_all_of_them_none() -> None:
    one = Condition(phase=Phase.RUNNING, logs_opened=2, logs_offline=["a-0"])
    assert judged(one) == ("degraded", ["log_offline"])
    assert judged(Condition(phase=Phase.RUNNING, logs_opened=2, logs_offline=["a-0", "a-1"])) == (
        "not ready",
        ["log_offline"],
    )


def test_many_logs_offline_are_not_all_named() -> None:
    names = [f"topic-{number}" for number in range(1000)]
    (reason,) = reasons_against(Condition(phase=Phase.RUNNING, logs_opened=2000, logs_offline=names))
    assert reason.detail.startswith("1000 logs serve nothing: topic-0, topic-1,")
    assert len(reason.detail) < 200


@pytest.mark.parametrize(("free", "status"), [(4, "degraded"), (5, "ready"), (0, "degraded")])
def test_a_disk_that_is_nearly_full_is_told(free: int, status: str) -> None:
    condition = Condition(phase=Phase.RUNNING, disk_free_bytes=free, disk_total_bytes=100)
    assert judged(condition)[0] == status
