"""Classic consumer groups and their committed offsets: one state machine per partition of `__consumer_offsets`.

    records         Kafka's formats of that topic's records
    group           one group: members, generation, protocol
    rebalance       the phases of a rebalance, and the timers that drive them
    membership      JoinGroup, SyncGroup, Heartbeat and LeaveGroup against one group
    offsets         committed and pending offsets of one group
    offset_commits  the requests about offsets
    responses       responses in the words of each version
    machine         `GroupMachine`, which holds all of it together
    coordinator     the machine on the runtime, with the broker's settings

Pure, except for the coordinator: time, member ids and tokens are arguments; records, responses and timers are
returned as a decision.
"""

from __future__ import annotations

from flintmq.coordinator.groups.machine import DeletedTopic, GroupMachine
from flintmq.coordinator.groups.membership import GroupClient
from flintmq.coordinator.groups.rebalance import GroupSettings

__all__ = ["DeletedTopic", "GroupClient", "GroupMachine", "GroupSettings"]
