"""The simulation can fail: a cluster with one mistake of replication in it is found out (R8).

Each mistake is found by a case in few steps, with explicit faults, in the default run. The long run looks for them in
histories under random faults, for as many seeds as FLINT_MISTAKE_SEEDS says, from FLINT_FIRST_SEED on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator

import pytest

from flintmq.errors import RequestError
from flintmq.testing.simulation.client import OutcomeUnknown
from flintmq.testing.simulation.fault_schedule import random_schedule
from flintmq.testing.simulation.world import WorldStuck
from support.simulation.cluster_history import run_cluster_history
from support.simulation.planted_mistakes import MISTAKES
from survival import test_clients as clients
from survival import test_elections as elections
from survival import test_isr as isr
from survival import test_truncation as truncation

_SEEDS_LONG = 500
_DURATION_S = 12.0
_TIMEOUT_S_LONG = 7_200

FOUND_BY: dict[str, Callable[[], None]] = {
    "truncates_to_the_high_watermark": truncation.test_logs_that_diverge_through_fast_failovers_become_equal,
    "does_not_truncate_after_a_missed_epoch": truncation.test_a_follower_that_missed_an_epoch_still_truncates,
    "notes_followers_that_diverge": truncation.test_a_fetch_that_diverges_does_not_let_a_follower_into_the_isr,
    "takes_responses_of_older_epochs": truncation.test_a_response_of_an_older_epoch_is_dropped,
    "lets_followers_join_that_lag": isr.test_a_follower_that_catches_up_joins_only_when_it_has_everything,
    "counts_a_shrink_before_it_is_committed": isr.test_a_shrink_counts_only_once_it_is_committed,
    "commits_under_min_isr": isr.test_nothing_is_committed_under_min_isr,
    "accepts_stale_broker_epochs": isr.test_a_fetch_of_an_old_broker_epoch_does_not_let_a_follower_in,
    "takes_uncertain_for_failed": isr.test_a_change_of_the_isr_that_was_applied_counts_though_nobody_says_so,
    "acknowledges_after_demotion": elections.test_a_zombie_never_acknowledges_with_acks_all,
    "takes_remote_markers_for_done": clients.test_a_marker_waits_for_a_target_that_cannot_be_reached,
    "answers_before_it_has_loaded": clients.test_a_transaction_commits_across_a_move_of_its_coordinator,
    "keeps_producer_state_after_a_truncation": clients.test_an_idempotent_retry_after_a_truncation_is_written,
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_by_a_case_in_few_steps(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = FOUND_BY[mistake]
    case()
    MISTAKES[mistake](monkeypatch)
    with pytest.raises((AssertionError, WorldStuck, OutcomeUnknown, RequestError)) as found:
        case()
    print(f"{mistake}: {found.value}")


@pytest.mark.long
@pytest.mark.timeout(_TIMEOUT_S_LONG)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_by_a_seed(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MISTAKES[mistake](monkeypatch)
    first = int(os.environ.get("FLINT_FIRST_SEED", "0"))
    count = int(os.environ.get("FLINT_MISTAKE_SEEDS", _SEEDS_LONG))
    for seed in range(first, first + count):
        schedule = random_schedule(seed, brokers=[1, 2, 3], duration_s=_DURATION_S)
        anomalies: list[object]
        try:
            anomalies = [*run_cluster_history(seed, schedule, duration_s=_DURATION_S).anomalies]
        except (WorldStuck, OutcomeUnknown, RequestError) as error:
            anomalies = [error]
        if anomalies:
            print(f"{mistake}: FLINT_SEED={seed}: {anomalies[0]}")
            return
    pytest.fail(f"{mistake} is not found in {count} seeds from {first} on")
