"""Where a follower's log parts from its leader's (KIP-101, KIP-279, KIP-595). Pure."""

from __future__ import annotations

from flintmq.storage.leader_epochs import LeaderEpochs


def common_end(epochs: LeaderEpochs, log_end: int, *, epoch: int, end_offset: int) -> int:
    """Return the offset to which a follower truncates its log after a fetch that diverged.

    The leader has answered that `epoch`, the largest of its own that is not above the follower's last one, ends at
    `end_offset`. Where the follower knows an epoch of that number, the logs may agree up to the smaller of both ends;
    otherwise they cannot agree beyond the follower's next lower epoch, and the next fetch asks again from there.
    """
    known, known_end = epochs.end_offset_of(epoch, log_end)
    if known < 0:
        # The follower's epochs are all older, or it knows none: only the leader's answer counts.
        return min(end_offset, log_end)
    if known == epoch:
        return min(known_end, end_offset, log_end)
    return min(known_end, log_end)
