"""How damage of a replica is repaired, and from which brokers. Pure.

Only what lies below the high watermark is copied: there all replicas are the same, and each of them may be read. A
follower never truncates its log because of damage, though the leader has what it would lose: until its next fetch it
would be a member of the ISR that lacks records which are acknowledged, and could be elected without them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum


class RepairAction(Enum):
    COPY = "copy"
    """Copy the batches from another replica."""
    RESIGN = "resign"
    """Let another member of the ISR lead: as long as this one does, nobody can copy what is damaged from it."""
    WAIT = "wait"
    """Wait until the high watermark has passed the damage, or the ISR has other members."""


def repair_action(
    *, leads: bool, damage_end: int, high_watermark: int, committed_end: int, is_alone: bool
) -> RepairAction:
    """Return what to do about damage that ends below `damage_end`.

    A leader knows by `committed_end` up to where every replica that counts has everything: the high watermark is
    about to move there. `is_alone`: the ISR has no other member.
    """
    if damage_end <= high_watermark:
        return RepairAction.COPY
    if leads and committed_end < damage_end and not is_alone:
        return RepairAction.RESIGN
    return RepairAction.WAIT


def repair_sources(
    *, node_id: int, leader: int, isr: Sequence[int], replicas: Sequence[int], alive: Collection[int]
) -> list[int]:
    """Return the brokers to ask, the best first: the leader, the rest of the ISR, the other replicas.

    A replica outside of the ISR may be asked too: it serves what lies below its own high watermark.
    """
    return [node for node in dict.fromkeys((leader, *isr, *replicas)) if node != node_id and node in alive]
