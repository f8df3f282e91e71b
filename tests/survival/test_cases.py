"""What a cluster must survive, and which test shows it in few steps; some cases need real processes."""

from __future__ import annotations

import ast
from pathlib import Path

LEADERSHIP, TRUNCATION, ISR, ELECTIONS, STORE, CLIENTS, REPAIR = (
    "leadership",
    "truncation",
    "isr",
    "elections",
    "store",
    "clients",
    "repair",
)

CASES: dict[str, tuple[str, str]] = {
    "truncation to the high watermark (KAFKA-1211)": (
        TRUNCATION,
        "a_follower_that_restarts_with_a_stale_high_watermark_keeps_what_is_committed",
    ),
    "a leader that was cut off (KIP-101)": (TRUNCATION, "records_of_a_leader_that_was_cut_off_are_truncated"),
    "divergence after fast failovers (KAFKA-6361, KIP-279)": (
        TRUNCATION,
        "logs_that_diverge_through_fast_failovers_become_equal",
    ),
    "a diverging fetch must not update follower state (KAFKA-13141)": (
        TRUNCATION,
        "a_fetch_that_diverges_does_not_let_a_follower_into_the_isr",
    ),
    "a response of an older epoch (KAFKA-18991)": (TRUNCATION, "a_response_of_an_older_epoch_is_dropped"),
    "a follower that missed an epoch (KAFKA-7164)": (
        TRUNCATION,
        "a_follower_that_missed_an_epoch_still_truncates",
    ),
    "follower with a longer log": (TRUNCATION, "a_follower_with_a_longer_log_is_cut"),
    "leader's start beyond the follower's end": (
        TRUNCATION,
        "the_start_of_the_leader_lies_beyond_the_end_of_a_follower",
    ),
    "a leader that changes during a truncation": (
        TRUNCATION,
        "a_truncation_outlives_the_leader_that_asked_for_it",
    ),
    "crash inside truncation, then regrowth": (
        TRUNCATION,
        "a_crash_inside_a_truncation_and_regrowth_in_the_same_segment",
    ),
    "ISR expansion with a lagging watermark (KAFKA-7128)": (ISR, "the_isr_expands_though_the_watermark_lags"),
    "ISR expansion by a follower that catches up (KAFKA-7128)": (
        ISR,
        "a_follower_that_catches_up_joins_only_when_it_has_everything",
    ),
    "stale ISR changes: an old broker epoch's (KIP-903)": (
        ISR,
        "a_fetch_of_an_old_broker_epoch_does_not_let_a_follower_in",
    ),
    "an ISR change that is applied and not answered": (
        ISR,
        "a_change_of_the_isr_that_was_applied_counts_though_nobody_says_so",
    ),
    "premature under min ISR (KAFKA-19996)": (ISR, "nothing_is_committed_under_min_isr"),
    "watermark after a shrink commits (KAFKA-13091)": (ISR, "a_shrink_counts_only_once_it_is_committed"),
    "stale ISR changes: a zombie's": (ISR, "an_isr_change_of_a_zombie_is_rejected"),
    "stale ISR changes: a follower restarted meanwhile (KIP-903)": (
        ISR,
        "a_fetch_that_was_sent_before_a_restart_does_not_let_a_follower_in",
    ),
    "an ISR change that ends Uncertain": (ISR, "an_isr_change_whose_outcome_is_uncertain"),
    "full disk on a follower": (ISR, "a_follower_whose_disk_is_full_leaves_and_returns_by_itself"),
    "full disk on a leader": (ISR, "a_leader_whose_disk_is_full_answers_with_an_error_and_recovers"),
    "slow follower at the lag limit": (ISR, "a_slow_follower_at_the_lag_limit_does_not_flap"),
    "fsync failure": (ISR, "a_sync_that_fails_loses_nothing"),
    "min.insync.replicas raised with produces parked": (
        ISR,
        "min_insync_replicas_is_raised_while_produces_are_parked",
    ),
    "min.insync.replicas lowered with produces parked": (
        ISR,
        "min_insync_replicas_is_lowered_while_produces_are_parked",
    ),
    "last replica standing, then an unclean restart (KIP-966)": (
        ELECTIONS,
        "the_last_replica_standing_is_not_replaced_after_an_unclean_restart_of_it",
    ),
    "all replicas lose power without fsync": (
        ELECTIONS,
        "no_replica_leads_after_all_have_lost_power_without_a_sync",
    ),
    "all replicas lose power with fsync": (ELECTIONS, "all_lose_power_where_every_record_is_synced"),
    "kill -9 in the same boot stays eligible": (
        ELECTIONS,
        "a_broker_that_was_killed_in_the_same_boot_stays_eligible",
    ),
    "controller paused in mid-plan": (ELECTIONS, "a_controller_that_was_paused_in_mid_plan_changes_nothing"),
    "two that take the controller's key": (ELECTIONS, "two_brokers_that_take_the_controllers_key_at_once"),
    "zombie leader with acks=1 and reads": (
        ELECTIONS,
        "a_zombie_never_acknowledges_with_acks_all",
    ),
    "pause of leader and follower": (ELECTIONS, "a_broker_is_paused"),
    "wall clock ±1 h": (ELECTIONS, "the_wall_clock_jumps"),
    "clock-rate skew": (ELECTIONS, "clocks_run_at_other_rates"),
    "asymmetric and bridge partitions; clients only": (ELECTIONS, "a_partitioned_network"),
    "flapping partitions": (ELECTIONS, "a_flapping_network"),
    "lease lost while alive": (ELECTIONS, "a_broker_that_loses_its_lease_while_it_lives"),
    "one node id registered twice": (ELECTIONS, "a_node_id_that_is_registered_twice_is_refused"),
    "preferred election under load": (ELECTIONS, "a_preferred_election_under_load"),
    "rolling restart": (ELECTIONS, "a_rolling_restart_under_load"),
    "store down for 5 minutes": (STORE, "an_outage_of_the_store_hurts_no_traffic"),
    "slow store": (STORE, "a_slow_store"),
    "store restored from a backup": (STORE, "a_store_that_was_restored_from_a_backup_stops_the_brokers"),
    "store compacted with leader changes and a re-created topic": (
        STORE,
        "a_compaction_with_leader_changes_and_a_recreated_topic_in_the_gap",
    ),
    "creator dies between partitions and topic key": (
        STORE,
        "a_creator_dies_between_partitions_and_topic_key",
    ),
    "concurrent CreatePartitions": (STORE, "concurrent_create_partitions_keep_what_is_there"),
    "reassignment whose target dies, and is cancelled": (
        STORE,
        "a_reassignment_whose_target_dies_is_cancelled",
    ),
    "reassignment whose topic is deleted": (STORE, "a_topic_is_deleted_while_it_is_reassigned"),
    "DeleteRecords during failover": (
        STORE,
        "the_start_never_goes_back_when_records_are_deleted_during_a_failover",
    ),
    "coordinator moves in mid-join": (CLIENTS, "a_group_coordinator_moves_in_mid_join"),
    "coordinator moves in mid-commit (KAFKA-20634)": (CLIENTS, "a_group_coordinator_moves_in_mid_commit"),
    "coordinator moves with decided markers": (
        CLIENTS,
        "a_transaction_commits_across_a_move_of_its_coordinator",
    ),
    "marker target unreachable": (CLIENTS, "a_marker_waits_for_a_target_that_cannot_be_reached"),
    "marker target moving": (CLIENTS, "a_marker_follows_its_partition_to_another_leader"),
    "delayed EndTxn (KIP-890)": (CLIENTS, "a_delayed_end_of_a_transaction_is_fenced"),
    "idempotent retries across failover": (CLIENTS, "an_idempotent_retry_after_a_failover_is_no_duplicate"),
    "idempotent retries across truncation": (CLIENTS, "an_idempotent_retry_after_a_truncation_is_written"),
    "KIP-392 follower behind": (CLIENTS, "a_consumer_reads_from_a_follower_that_is_behind"),
    "the watermark of a new leader (KIP-207)": (
        CLIENTS,
        "the_watermark_of_a_new_leader_does_not_send_consumers_back",
    ),
    "damage on a follower": (REPAIR, "damage_on_a_follower_is_copied_from_the_leader"),
    "damage on a leader": (REPAIR, "damage_on_a_leader_is_copied_from_a_follower"),
    "damage in an active segment": (REPAIR, "damage_in_the_active_segment_is_repaired"),
    "damage outside of the CRC": (REPAIR, "damage_in_the_header_of_a_batch_is_repaired"),
    "damage on a follower above the watermark": (
        REPAIR,
        "damage_above_the_watermark_of_a_follower_waits_for_the_watermark",
    ),
    "damage on a leader above the watermark": (
        REPAIR,
        "a_leader_that_is_damaged_above_the_watermark_gives_way",
    ),
    "damage on two replicas": (REPAIR, "another_replica_is_asked_where_the_first_is_damaged_too"),
    "damage on all replicas": (REPAIR, "a_range_that_nobody_has_stays_refused_and_is_tried_again"),
    "damage that is found at a start": (REPAIR, "damage_that_is_found_at_a_start_is_repaired"),
    "damage below the start of a log": (REPAIR, "records_that_were_deleted_are_not_asked_for"),
    "crash inside a repair": (REPAIR, "a_broker_dies_at_each_disk_operation_of_a_repair"),
    "damage in a compacted topic": (REPAIR, "a_compacted_topic_is_repaired_and_compacted_again"),
    "damage that a compaction finds": (
        REPAIR,
        "a_log_that_could_not_be_compacted_is_compacted_after_its_repair",
    ),
    "damage in transactions": (REPAIR, "aborted_transactions_stay_aborted"),
    "a leader with damage that it does not know of": (
        REPAIR,
        "a_follower_does_not_copy_damage_of_its_leader",
    ),
    "a leader that changes during a repair": (REPAIR, "a_repair_outlives_a_change_of_leaders"),
    "the maximal ISR of a leader that was alone (KIP-497)": (
        LEADERSHIP,
        "a_proposed_member_counts_for_a_leader_that_was_alone",
    ),
    "an ISR that shrinks to its leader": (LEADERSHIP, "a_leader_that_has_shrunk_its_isr_to_itself_goes_on"),
    "a replica that is far behind": (LEADERSHIP, "nothing_waits_for_a_replica_that_is_far_behind"),
    "ISR expansion under load": (LEADERSHIP, "a_follower_joins_a_leader_that_is_alone_under_load"),
    "a request that is dispatched by a demotion": (
        LEADERSHIP,
        "a_request_that_was_held_back_is_not_acknowledged_by_another_leader",
    ),
    "a long poll across an election": (LEADERSHIP, "a_fetch_that_waits_hears_of_another_leader_at_once"),
    "topics that change while a broker starts": (
        LEADERSHIP,
        "a_topic_that_changes_while_a_broker_opens_its_logs",
    ),
    "a late marker of the transaction before (KIP-890)": (
        LEADERSHIP,
        "back_to_back_transactions_away_from_their_coordinator",
    ),
    "markers beside a partition that cannot commit": (
        LEADERSHIP,
        "a_partition_that_cannot_commit_holds_up_the_markers_of_no_others",
    ),
}

WITH_REAL_PROCESSES = {
    "sendfile races the sender's truncation (KAFKA-18723)": "the simulated network copies; sendfile needs sockets",
    "SIGSTOP of the supervisor and of etcd's leader": "both are processes of the operating system",
    "a member of the store lost or wiped": "the simulated store has one member",
    "a failed directory": "one broker has one data directory here; its removal needs a file system",
}
"""Cases that the simulated world cannot show, with the reason."""


def test_every_case_has_its_test() -> None:
    here, missing = Path(__file__).parent, []
    for case, (module, test) in CASES.items():
        tree = ast.parse((here / f"test_{module}.py").read_text())
        if f"test_{test}" not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            missing.append(case)
    assert not missing
    assert not CASES.keys() & WITH_REAL_PROCESSES.keys()
