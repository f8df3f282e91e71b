"""When the answer of another broker about a transaction still counts (KIP-890)."""

from __future__ import annotations

from flintmq.partitions.verification_guards import VerificationGuards
from flintmq.records.markers import Marker


def test_a_guard_holds_in_its_leader_epoch() -> None:
    guards = VerificationGuards()
    guards.begin(7, 0, leader_epoch=3)
    assert guards.holds(7, leader_epoch=3)
    assert not guards.holds(7, leader_epoch=4)
    assert not guards.holds(8, leader_epoch=3)


def test_a_marker_of_the_same_epoch_ends_a_transaction_that_has_no_epoch_of_its_own() -> None:
    guards = VerificationGuards()
    guards.begin(7, 5, leader_epoch=0)
    guards.end(Marker(7, 4, 0, True), bumps_epoch=False)
    assert guards.holds(7, leader_epoch=0)
    guards.end(Marker(7, 5, 0, True), bumps_epoch=False)
    assert not guards.holds(7, leader_epoch=0)


def test_with_an_epoch_for_each_transaction_only_a_later_marker_ends_it() -> None:
    guards = VerificationGuards()
    guards.begin(7, 5, leader_epoch=0)
    guards.end(Marker(7, 5, 0, True), bumps_epoch=True)
    assert guards.holds(7, leader_epoch=0)
    guards.end(Marker(7, 6, 0, True), bumps_epoch=True)
    assert not guards.holds(7, leader_epoch=0)


def test_the_number_of_guards_is_bounded() -> None:
    guards = VerificationGuards()
    for producer_id in range(10_001):
        guards.begin(producer_id, 0, leader_epoch=0)
    assert not guards.holds(0, leader_epoch=0)
    assert guards.holds(10_000, leader_epoch=0)
