"""Classic consumer groups and their committed offsets: one state machine per partition of `__consumer_offsets`.

    records       Kafka's formats of that topic's records
    group         one group: members, generation, protocol
    rebalancing   the phases of a rebalance, and the timers that drive them
    membership    JoinGroup, SyncGroup, Heartbeat and LeaveGroup against one group
    offsets       committed and pending offsets of one group
    commits       the requests about offsets
    replies       what is answered, in the words of each version
    machine       `Groups`, which holds all of it together

Pure: time, member ids and tokens come with the question; records, replies and timers go out as a decision.
"""

from __future__ import annotations

from flintmq.coordinator.groups.machine import DeletedTopic, GroupMachine
from flintmq.coordinator.groups.membership import Client
from flintmq.coordinator.groups.rebalance import GroupSettings

__all__ = ["Client", "DeletedTopic", "GroupMachine", "GroupSettings"]
