"""What handlers may use: the domain, assembled once by the composition root."""

from __future__ import annotations

from dataclasses import dataclass, field

from flintmq.broker.endpoints import Endpoints
from flintmq.broker.fetch_sessions import FetchSessions
from flintmq.broker.limits import Lane
from flintmq.broker.parked_fetches import Waiting
from flintmq.coordinator.groups.machine import Groups
from flintmq.coordinator.runtime.coordinator import Coordinator
from flintmq.coordinator.transactions.coordinator import TransactionCoordinator
from flintmq.coordinator.transactions.marker_writer import Markers
from flintmq.effects import Clock, Disk, Executor, Random, Timers
from flintmq.metadata.cluster_metadata import Metadata
from flintmq.metadata.configs import Configs
from flintmq.metadata.producer_ids import ProducerIds
from flintmq.metadata.topics import Topics
from flintmq.metrics import Counters
from flintmq.partitions.local_partitions import Partitions
from flintmq.partitions.maintenance.scheduler import Upkeep


@dataclass(frozen=True, slots=True)
class Services:
    node_id: int
    metadata: Metadata
    topics: Topics
    partitions: Partitions
    upkeep: Upkeep
    groups: Coordinator[Groups]
    transactions: TransactionCoordinator
    markers: Markers
    configs: Configs
    producer_ids: ProducerIds
    sessions: FetchSessions
    endpoints: Endpoints
    clock: Clock
    timers: Timers
    random: Random
    executor: Executor
    disk: Disk
    counters: Counters = field(default_factory=Counters)
    waiting: Waiting = field(default_factory=Waiting)
    opening: Lane = field(default_factory=Lane)
    """For batches that a topic wants opened."""
    lookups: Lane = field(default_factory=Lane)
    """For records that are looked up by their time."""
    describing: Lane = field(default_factory=Lane)
    """For answers that take much memory while they are put together."""
