"""What handlers may use: the domain, assembled once by the composition root."""

from __future__ import annotations

from dataclasses import dataclass, field

from flintmq.broker.authorization import Authorization
from flintmq.broker.endpoints import Endpoints
from flintmq.broker.fetch_sessions import FetchSessions
from flintmq.broker.limits import ParkedFetchLimit, SerialExecutor
from flintmq.coordinator.groups.coordinator import GroupCoordinator
from flintmq.coordinator.transactions.coordinator import TransactionCoordinator
from flintmq.coordinator.transactions.marker_writer import MarkerWriter
from flintmq.effects import Clock, Disk, Executor, Random, Timers
from flintmq.metadata.client_quotas import ClientQuotas
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.configs import Configs
from flintmq.metadata.producer_ids import ProducerIds
from flintmq.metadata.scram_credentials import ScramCredentials
from flintmq.metadata.topics import Topics
from flintmq.metrics import Counters
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.maintenance.scheduler import MaintenanceScheduler
from flintmq.partitions.replication.leader import LeaderReplication
from flintmq.security.audit import AuditLog
from flintmq.security.authentication.authenticator import SaslAuthenticator
from flintmq.security.delegation_tokens import DelegationTokens
from flintmq.security.quotas.client_quotas import LimitedClients


@dataclass(frozen=True, slots=True)
class Services:
    node_id: int
    metadata: ClusterMetadata
    topics: Topics
    partitions: LocalPartitions
    maintenance: MaintenanceScheduler
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    markers: MarkerWriter
    configs: Configs
    producer_ids: ProducerIds
    sessions: FetchSessions
    endpoints: Endpoints
    sasl: SaslAuthenticator
    scram_credentials: ScramCredentials
    client_quotas: ClientQuotas
    """As they are set."""
    limited_clients: LimitedClients
    """As they are enforced."""
    tokens: DelegationTokens
    clock: Clock
    timers: Timers
    random: Random
    executor: Executor
    disk: Disk
    authorizer: Authorization | None = None
    """None if everything is allowed (`authorizer.class.name` is empty)."""
    replication: LeaderReplication | None = None
    """What leaders know of their followers; None on a standalone broker."""
    audit: AuditLog | None = None
    """None without `flint.audit.log.file`."""
    counters: Counters = field(default_factory=Counters)
    parked_fetches: ParkedFetchLimit = field(default_factory=ParkedFetchLimit)
    batch_validation: SerialExecutor = field(default_factory=SerialExecutor)
    """For batches that a topic wants validated or recompressed."""
    timestamp_lookups: SerialExecutor = field(default_factory=SerialExecutor)
    """For records that are looked up by timestamp."""
    describing: SerialExecutor = field(default_factory=SerialExecutor)
    """For responses that take much memory while they are built."""
