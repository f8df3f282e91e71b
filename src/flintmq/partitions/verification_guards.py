"""Producers whose transactions another broker verifies, and whether the answer still counts (KIP-890). Pure."""

from __future__ import annotations

from typing import Final

from flintmq.records.markers import Marker

_GUARDS_MAX: Final = 10_000


class VerificationGuards:
    """Of one partition."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, tuple[int, int]] = {}
        """By producer: its epoch, and the leader epoch in which the verification began."""

    def begin(self, producer_id: int, producer_epoch: int, leader_epoch: int) -> None:
        if len(self._guards) >= _GUARDS_MAX:
            # Those asked first have had their answers, or will not need them.
            del self._guards[next(iter(self._guards))]
        self._guards[producer_id] = producer_epoch, leader_epoch

    def holds(self, producer_id: int, leader_epoch: int) -> bool:
        guard = self._guards.get(producer_id)
        return guard is not None and guard[1] == leader_epoch

    def end(self, marker: Marker, bumps_epoch: bool) -> None:
        """Drop the guard of the transaction that a marker ends.

        Where each transaction has an epoch of its own, its marker has the next one: a marker of the same epoch is
        that of the transaction before, which may arrive while the next one is verified.
        """
        guard = self._guards.get(marker.producer_id)
        if guard is not None and (marker.epoch > guard[0] or (marker.epoch == guard[0] and not bumps_epoch)):
            del self._guards[marker.producer_id]
