"""What a broker of a cluster has besides: its registration, its fetchers, its followers, a controller, and ways to
other brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from flintmq.cluster.broker_registration import BrokerRegistration
from flintmq.cluster.controller import Controller
from flintmq.cluster.elections import ElectionRules
from flintmq.cluster.placement import ClusterPlacement
from flintmq.cluster.registrations import SavedRegistration, clean_since, decode_saved, encode_saved
from flintmq.coordinator.transactions.remote_markers import RemoteMarkers
from flintmq.coordinator.transactions.remote_verification import RemoteCoordinators
from flintmq.effects import Effects, read_file, write_atomically
from flintmq.errors import MetadataStoreError, StorageError
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.configs import Configs
from flintmq.metadata.keys import ListenerValue
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.maintenance.log_cleaner import LogCleaner
from flintmq.partitions.replication.fetchers import ReplicaFetchers
from flintmq.partitions.replication.leader import LeaderReplication
from flintmq.partitions.replication.repairs import ReplicaRepairs
from flintmq.settings.listeners import protocols_of
from flintmq.storage.log import Log
from flintmq.storage.log_dir import LogDir
from flintmq.storage.recovery.log_loader import RecoveryReport

logger: Final = logging.getLogger(__name__)

REGISTRATION_FILE: Final = "registration"
LEASE_TTL_S: Final = 5.0
DRAIN_S: Final = 10.0
NOT_REGISTERED: Final = -1


class BrokerCluster:
    replication: LeaderReplication
    fetchers: ReplicaFetchers
    repairs: ReplicaRepairs
    controller: Controller

    def __init__(
        self,
        effects: Effects,
        metadata: ClusterMetadata,
        configs: Configs,
        *,
        node_id: int,
        data_dir: str,
        on_fatal: Callable[[BaseException], object],
    ) -> None:
        assert effects.network is not None
        self._effects = effects
        self._network = effects.network
        self._metadata = metadata
        self._configs = configs
        self._node_id = node_id
        self._path = f"{data_dir}/{REGISTRATION_FILE}"
        self._partitions: LocalPartitions | None = None
        self._clean_since = 0
        self._on_fatal = on_fatal
        self._failing: asyncio.Task[None] | None = None
        self.registration: BrokerRegistration | None = None
        self.markers = RemoteMarkers(effects.network)
        self.coordinators = RemoteCoordinators(effects.network)
        self.placement = ClusterPlacement(
            metadata.image, lambda: int.from_bytes(effects.random.bytes(4), "big")
        )

    @property
    def broker_epoch(self) -> int:
        return NOT_REGISTERED if self.registration is None else self.registration.epoch

    def _lease_id(self) -> int:
        return 0 if self.registration is None else self.registration.lease_id

    def start(
        self,
        partitions: LocalPartitions,
        log_dir: LogDir,
        cleaner: LogCleaner,
        recovered: Sequence[tuple[Log, RecoveryReport]],
    ) -> None:
        """Follow leaders and followers, and repair damaged logs, from now on."""
        self._partitions = partitions
        self._clean_since = self._kept_since(log_dir, recovered)
        if not self._clean_since:
            # ORDER: BEFORE the broker can stop: it may never register, and the next start finds nothing wrong.
            self._forget_registration()
        effects, node_id = self._effects, self._node_id
        self.replication = LeaderReplication(
            self._metadata,
            partitions,
            node_id=node_id,
            broker_epoch=lambda: self.broker_epoch,
            clock=effects.clock,
            timers=effects.timers,
            config=lambda: self._configs.broker,
        )
        self.replication.start()
        self.fetchers = ReplicaFetchers(
            partitions,
            self._network,
            node_id=node_id,
            broker_epoch=lambda: self.broker_epoch,
            clock=effects.clock,
            config=lambda: self._configs.broker,
        )
        self.fetchers.start()
        self.repairs = ReplicaRepairs(
            partitions,
            cleaner,
            self.replication,
            self._network,
            node_id=node_id,
            clock=effects.clock,
            executor=effects.executor,
            config=lambda: self._configs.broker,
        )
        self.repairs.start()
        log_dir.watch(self._watch)
        self.controller = Controller(
            self._metadata,
            node_id=node_id,
            clock=effects.clock,
            rules=self._rules,
            broker_epoch=lambda: self.broker_epoch,
            lease_id=self._lease_id,
        )

    async def join(self) -> None:
        """Register: from now on this broker is elected, and other brokers reach it.

        ORDER: after the listeners are open.
        """
        self.registration = BrokerRegistration(
            self._metadata,
            node_id=self._node_id,
            incarnation=self._effects.random.bytes(16).hex(),
            listeners=_advertised(self._configs),
            rack=self._configs.broker.broker_rack,
            clean_since=self._clean_since,
            ttl_s=LEASE_TTL_S,
            registered=self._save,
            epoch_changed=self._epoch_changed,
        )
        await self.registration.start()
        self.controller.start()

    async def drain(self) -> None:
        """Let others lead what they can, before this broker stops; for a bounded time."""
        if self.registration is None:
            return
        try:
            async with asyncio.timeout(DRAIN_S):
                await self.registration.drain()
        except (TimeoutError, MetadataStoreError) as error:
            logger.warning("the broker stops before others lead all that it led: %s", error or "timeout")

    async def close(self) -> None:
        """Leave the cluster: other brokers lead what this one led."""
        if self.registration is not None:
            await self.controller.close()
            await self.registration.close()
        await asyncio.gather(
            self.repairs.close(),
            self.fetchers.close(),
            self.replication.close(),
            self.markers.close(),
            self.coordinators.close(),
        )

    def _rules(self, topic: str) -> ElectionRules:
        config = self._configs.topic(topic)
        return ElectionRules(config.min_insync_replicas, config.unclean_leader_election_enable)

    def _epoch_changed(self) -> None:
        """A new registration: what was led under the one before is led no more."""
        if self._partitions is not None:
            self._partitions.reassess()

    # ---- logs that are damaged, and a disk that fails

    def _watch(self, log: Log) -> None:
        log.on_offline = lambda reason: self._effects.timers.call_soon(self._disk_failed, reason)
        log.on_corrupt = lambda: self.repairs.damage_found(log)

    def _disk_failed(self, reason: str) -> None:
        """Stop, as a Kafka broker whose only log directory has failed: others lead what this one led."""
        if self._failing is None:
            self._failing = asyncio.create_task(self._stop_after_failure(reason), name="disk failure")

    async def _stop_after_failure(self, reason: str) -> None:
        """ORDER: the logs count as not kept BEFORE the broker stops: a failed sync may have lost what was written,
        and the next process would not see that."""
        try:
            await self._effects.executor.run(self._forget_registration)
        except OSError as error:
            logger.error("%s could not be removed: %s", self._path, error)
        self._on_fatal(StorageError(f"A broker of a cluster stops when its disk fails: {reason}"))

    def _forget_registration(self) -> None:
        disk = self._effects.disk
        if disk.exists(self._path):
            disk.remove(self._path)
            disk.sync_dir(self._path.rpartition("/")[0])

    # ---- since when the logs have been kept

    def _kept_since(self, log_dir: LogDir, recovered: Sequence[tuple[Log, RecoveryReport]]) -> int:
        disk = self._effects.disk
        saved = None
        if disk.exists(self._path):
            try:
                saved = decode_saved(read_file(disk, self._path))
            except msgspec.DecodeError:
                logger.warning("%s is damaged: the logs count as restarted uncleanly", self._path)
        return clean_since(
            saved,
            cluster_id=self._metadata.image.cluster_id,
            node_id=self._node_id,
            boot_id=self._effects.boot_id,
            was_stopped_cleanly=log_dir.was_clean,
            has_lost_records=any(
                report.quarantined or report.segments_dropped or log.offline is not None
                for log, report in recovered
            ),
        )

    async def _save(self, since: int) -> None:
        saved = SavedRegistration(
            cluster_id=self._metadata.image.cluster_id,
            node_id=self._node_id,
            boot_id=self._effects.boot_id,
            clean_since=since,
        )
        await self._effects.executor.run(
            write_atomically, self._effects.disk, self._path, encode_saved(saved)
        )


def _advertised(configs: Configs) -> list[ListenerValue]:
    config = configs.broker
    protocols = protocols_of(config)
    return [
        ListenerValue(one.name, one.host, one.port, protocols[one.name].name)
        for one in config.advertised_listeners or config.listeners
    ]
