"""A small model of one partition on several brokers, to which the real decisions are applied.

Brokers have a log, a view of the partition that may be old, and a registration. Leaders append, followers copy and
truncate, leaders propose ISRs and acknowledge records, a controller decides on an old view and applies later.
Whatever happens, in whatever order: a leader that is elected holds every acknowledged record, epochs do not fall, and
an epoch has one leader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from flintmq.cluster import reassignment
from flintmq.cluster.elections import (
    NO_LEADER,
    Election,
    ElectionRules,
    StateChange,
    controlled_change,
    eligible_leader_replicas,
    in_sync,
    is_eligible,
    isr_change,
)
from flintmq.errors import RequestError
from flintmq.metadata import keys
from flintmq.metadata.image import BrokerImage, PartitionImage
from flintmq.metadata.keys import PartitionValue

KEY = "/p/t/0"
ACTION_COUNT = 128
Record = tuple[int, int]
"""The leader epoch, and a number that is unique."""


@dataclass
class Leadership:
    """What a leader knows in its epoch."""

    epoch: int
    start: int
    high_watermark: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    broker_epochs: dict[int, int] = field(default_factory=dict)
    pending: StateChange | None = None


@dataclass
class ModelBroker:
    id: int
    log: list[Record] = field(default_factory=list)
    is_alive: bool = False
    epoch: int = -1
    """Of the registration that the process believes to have."""
    clean_since: int = 0
    view: PartitionImage | None = None
    leadership: Leadership | None = None


class ReplicaModel:
    def __init__(self, *, count: int = 4, factor: int = 3, min_isr: int = 2) -> None:
        self.revision = 0
        self.brokers = {node: ModelBroker(node) for node in range(count)}
        self.registered: dict[int, BrokerImage] = {}
        self.rules = ElectionRules(min_isr, allows_unclean=False)
        self.acknowledged: list[Record] = []
        self.leaders: dict[int, int] = {}
        self.counts = dict.fromkeys(("elections", "acks", "isr", "unclean", "refused"), 0)
        self._number = 0
        self._planned: list[StateChange] = []
        for node in range(count):
            self.restart(node)
        replicas = list(range(factor))
        value = PartitionValue(
            leader=0,
            epoch=0,
            replicas=replicas,
            isr=replicas,
            isr_epochs=[self.registered[node].epoch for node in replicas],
        )
        self.revision += 1
        self.state = PartitionImage(value, self.revision)
        self.leaders[0] = 0

    # ---- the store

    def _revision_of(self, key: str) -> int:
        if key == KEY:
            return self.state.revision
        if key == keys.CONTROLLER:
            return 1
        found = self.registered.get(int(key.removeprefix(keys.BROKERS)))
        return found.epoch if found else 0

    def _commit(self, change: StateChange) -> bool:
        if any(self._revision_of(key) != revision for key, revision in change.expect.items()):
            self.counts["refused"] += 1
            return False
        before = self.state.value
        self.revision += 1
        self.state = PartitionImage(change.value, self.revision)
        self._check(before, change.value)
        return True

    def _check(self, before: PartitionValue, after: PartitionValue) -> None:
        assert after.epoch >= before.epoch, "the epoch fell"
        assert not set(after.isr) & set(after.elr)
        if after.leader != NO_LEADER:
            assert after.leader in after.isr
            assert self.leaders.setdefault(after.epoch, after.leader) == after.leader, (
                "two leaders in one epoch"
            )
            if after.epoch != before.epoch:
                self.counts["elections"] += 1
                log = self.brokers[after.leader].log
                kept = log[: len(self.acknowledged)]
                assert kept == self.acknowledged, f"{after.leader} was elected and lacks acknowledged records"
        elif before.leader != NO_LEADER:
            assert after.epoch == before.epoch + 1
        for node, epoch in {**in_sync(after), **eligible_leader_replicas(after)}.items():
            if is_eligible(node, epoch, self.registered):
                held = self.brokers[node].log[: len(self.acknowledged)]
                assert held == self.acknowledged, f"{node} is eligible and lacks acknowledged records"

    # ---- brokers

    def restart(self, node: int) -> None:
        """Start, or register again after the lease was lost."""
        broker = self.brokers[node]
        if node in self.registered:
            return
        self.revision += 1
        value = keys.BrokerValue(incarnation=f"{self.revision}", clean_since=broker.clean_since)
        self.registered[node] = BrokerImage(node, self.revision, value)
        broker.clean_since = self.registered[node].clean_since
        broker.epoch = self.revision
        broker.is_alive = True
        broker.leadership = None

    def lose_lease(self, node: int) -> None:
        """The process goes on: it may lead on as a zombie."""
        self.registered.pop(node, None)

    def kill(self, node: int) -> None:
        self.lose_lease(node)
        self.brokers[node].is_alive = False
        self.brokers[node].leadership = None

    def lose_power(self, node: int, kept: int) -> None:
        self.kill(node)
        broker = self.brokers[node]
        del broker.log[kept % (len(broker.log) + 1) :]
        broker.clean_since = 0
        self.counts["unclean"] += 1

    def drain(self, node: int) -> None:
        if node in self.registered:
            found = self.registered[node]
            self.registered[node] = BrokerImage(node, found.epoch, found.value, is_draining=True)

    def learn(self, node: int) -> None:
        """The broker sees the partition as it is now."""
        broker = self.brokers[node]
        if not broker.is_alive:
            return
        broker.view = self.state
        if not self.state.is_led_by(node, broker.epoch):
            broker.leadership = None
        elif broker.leadership is None or broker.leadership.epoch != self.state.epoch:
            broker.leadership = Leadership(self.state.epoch, start=len(broker.log))
        elif broker.leadership.pending is not None:
            # Its outcome is in the view by now, or it never will be.
            broker.leadership.pending = None

    def append(self, node: int) -> None:
        broker = self.brokers[node]
        if broker.leadership is not None:
            self._number += 1
            broker.log.append((broker.leadership.epoch, self._number))
            self._acknowledge(broker)

    def fetch(self, node: int, count: int) -> None:
        """Copy up to `count` records from the leader that this broker knows, after what both have."""
        broker = self.brokers[node]
        if not broker.is_alive or broker.view is None or broker.view.leader in (NO_LEADER, node):
            return
        leader = self.brokers[broker.view.leader]
        leading = leader.leadership
        if leading is None or leading.epoch != broker.view.epoch or node not in broker.view.replicas:
            return
        same = 0
        for ours, theirs in zip(broker.log, leader.log, strict=False):
            if ours[0] != theirs[0]:
                break
            assert ours == theirs, "two records at one offset in one epoch"
            same += 1
        # A log that ends before the leader's is not diverging.
        del broker.log[same:]
        broker.log.extend(leader.log[same : same + count])
        leading.ends[node] = len(broker.log)
        leading.broker_epochs[node] = broker.epoch
        self._acknowledge(leader)

    def catch_up(self, node: int) -> None:
        self.learn(node)
        self.fetch(node, 100)

    def propose(self, node: int, dropped: int) -> None:
        """The leader proposes an ISR: all that may join, without `dropped`."""
        broker = self.brokers[node]
        leading, view = broker.leadership, broker.view
        if leading is None or view is None or leading.pending is not None:
            return
        isr = {node: broker.epoch}
        before = in_sync(view.value)
        for other in view.replicas:
            epoch = leading.broker_epochs.get(other, -1)
            end = leading.ends.get(other, -1)
            if other in (node, dropped):
                continue
            if end >= max(leading.high_watermark, leading.start):
                isr[other] = epoch
            elif other in before:
                isr[other] = before[other]
        try:
            leading.pending = isr_change(
                KEY,
                view,
                isr,
                node_id=node,
                broker_epoch=broker.epoch,
                brokers=self.registered,
                rules=self.rules,
            )
        except RequestError:
            self.counts["refused"] += 1

    def expand(self, node: int) -> None:
        self.learn(node)
        self.propose(node, dropped=-1)
        self.commit_proposal(node)

    def commit_proposal(self, node: int) -> None:
        """The store applies the leader's proposal, or refuses it; the leader learns of it later."""
        leading = self.brokers[node].leadership
        if leading is not None and leading.pending is not None and self._commit(leading.pending):
            self.counts["isr"] += 1

    def _acknowledge(self, leader: ModelBroker) -> None:
        leading, view = leader.leadership, leader.view
        assert leading is not None
        assert view is not None
        if len(view.isr) < min(self.rules.min_isr, len(view.replicas)) or view.value.elr:
            return
        counted = {*view.isr, *(leading.pending.value.isr if leading.pending else ())} - {leader.id}
        end = min([len(leader.log), *(leading.ends.get(node, 0) for node in counted)])
        leading.high_watermark = max(leading.high_watermark, end)
        if leading.high_watermark > len(self.acknowledged):
            new = leader.log[: leading.high_watermark]
            assert new[: len(self.acknowledged)] == self.acknowledged, "an acknowledged record was replaced"
            self.acknowledged = list(new)
            self.counts["acks"] += 1

    # ---- the controller

    def plan(self, election: Election = Election.ONLINE) -> None:
        """Decide now, and apply later."""
        value = reassignment.settled(self.state.value, self.registered, self.rules, election)
        if value != self.state.value:
            self._planned.append(
                controlled_change(KEY, self.state, value, self.registered, controller_revision=1)
            )

    def control(self) -> None:
        self.plan()
        self.apply_plan(-1)

    def apply_plan(self, which: int) -> None:
        if self._planned:
            self._commit(self._planned.pop(which % len(self._planned)))

    def change_min_isr(self, min_isr: int) -> None:
        self.rules = ElectionRules(1 + min_isr % 3, allows_unclean=False)

    def reassign(self, first: int, factor: int) -> None:
        count = len(self.brokers)
        # Not one: a single replica leads whatever it has lost.
        target = [(first + at) % count for at in range(2 + factor % (count - 1))]
        value = self.state.value
        try:
            wanted = reassignment.start(value, target, self.registered, factor_may_change=True)
        except RequestError:
            return
        self._apply_wanted(wanted)

    def cancel_reassignment(self) -> None:
        try:
            self._apply_wanted(reassignment.cancelled(self.state.value, self.rules))
        except RequestError:
            pass

    def _apply_wanted(self, wanted: PartitionValue) -> None:
        value = reassignment.settled_from(self.state.value, wanted, self.registered, self.rules)
        self._commit(controlled_change(KEY, self.state, value, self.registered, controller_revision=1))

    # ---- steps

    def step(self, action: int, node: int, number: int) -> None:
        """Do one of all things that can happen; frequent ones have several numbers."""
        node %= len(self.brokers)
        steps: list[Callable[[], None]] = [
            *[lambda: self.append(node)] * 12,
            *[lambda: self.fetch(node, 1 + number % 4)] * 16,
            *[lambda: self.catch_up(node)] * 14,
            *[lambda: self.learn(node)] * 24,
            *[lambda: self.propose(node, dropped=number - 4)] * 8,
            *[lambda: self.commit_proposal(node)] * 6,
            *[lambda: self.expand(node)] * 6,
            *[lambda: self.plan()] * 3,
            *[lambda: self.apply_plan(number)] * 3,
            *[self.control] * 10,
            *[lambda: self.restart(node)] * 16,
            lambda: self.plan(Election.PREFERRED),
            *[lambda: self.lose_lease(node)] * 2,
            *[lambda: self.kill(node)] * 2,
            lambda: self.lose_power(node, number) if number < 3 else None,
            lambda: self.drain(node),
            lambda: self.change_min_isr(number),
            lambda: self.reassign(node, number),
            self.cancel_reassignment,
        ]
        assert len(steps) == ACTION_COUNT
        steps[action]()

    @property
    def is_dead(self) -> bool:
        """Whether no replica can ever be elected again."""
        return not (self.state.value.isr or self.state.value.elr)
