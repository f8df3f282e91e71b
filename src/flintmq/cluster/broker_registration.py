"""The registration of this broker: made at the start, renewed by its lease, made again when the lease is lost.

A broker that has lost its lease goes on as it is: whether it still leads is decided by its followers and by the
store, not by its clock. With the next registration it has another broker epoch, and leads nothing until it is elected
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from flintmq.cluster import registrations
from flintmq.errors import MetadataStoreError, RequestError
from flintmq.metadata import keys
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.keys import ListenerValue
from flintmq.metadata.store import Lease

logger: Final = logging.getLogger(__name__)

RETRY_S: Final = 0.2
WAIT_TTLS: Final = 2
"""How long a start waits for the registration of an earlier process to expire, in lifetimes of a lease."""


class BrokerRegistration:
    def __init__(
        self,
        metadata: ClusterMetadata,
        *,
        node_id: int,
        incarnation: str,
        listeners: Sequence[ListenerValue],
        rack: str | None,
        clean_since: int,
        ttl_s: float,
        registered: Callable[[int], Awaitable[None]],
        epoch_changed: Callable[[], object] = lambda: None,
    ) -> None:
        """`registered` is awaited with `clean_since` after the first registration: it saves it. `epoch_changed` is
        called with each registration, when `epoch` is known.

        `incarnation` is a random id of this process; `clean_since` is what `registrations.clean_since` returned.
        """
        self._metadata = metadata
        self._node_id = node_id
        self._incarnation = incarnation
        self._listeners = listeners
        self._rack = rack
        self._clean_since = clean_since
        self._ttl_s = ttl_s
        self._registered = registered
        self._epoch_changed = epoch_changed
        self._lease: Lease | None = None
        self._keeping: asyncio.Task[None] | None = None
        self.epoch = -1
        """The broker epoch; -1 before the first registration."""

    @property
    def lease_id(self) -> int:
        """The lease under which keys of this broker are written; 0 while there is none."""
        return self._lease.id if self._lease is not None else 0

    async def start(self) -> None:
        """Register. RequestError if another process keeps the id, MetadataStoreError if the store is unavailable."""
        try:
            async with asyncio.timeout(WAIT_TTLS * self._ttl_s):
                await self._register_when_free()
        except TimeoutError:
            # Raises for the process that has the id; if it is gone by now, this registers.
            await self._register()
        await self._registered(self._clean_since)
        self._keeping = asyncio.create_task(self._keep(), name="broker registration")

    async def drain(self) -> None:
        """Announce a controlled shutdown; return once others lead what they can."""
        expect, writes = registrations.draining(
            self._node_id, incarnation=self._incarnation, epoch=self.epoch, lease=self.lease_id
        )
        if not (await self._metadata.txn(expect, writes)).committed:
            # The registration is lost: nothing is led here any more.
            return
        changed = asyncio.Event()
        self._metadata.subscribe(lambda delta: changed.set())
        while not registrations.is_drained(self._metadata.image, self._node_id):
            # Looks at all partitions, so once for all changes of a turn.
            await changed.wait()
            changed.clear()

    async def close(self) -> None:
        """Give up the registration: others take over at once."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self._lease is not None:
            lease, self._lease = self._lease, None
            try:
                await lease.revoke()
            except MetadataStoreError as error:
                logger.warning("the registration could not be given up, and will expire: %s", error)

    async def _keep(self) -> None:
        while True:
            lease = self._lease
            if lease is not None:
                await lease.lost()
                self._lease = None
                logger.warning("broker %d has lost its registration, and registers again", self._node_id)
            try:
                await self._register()
                logger.info("broker %d is registered with epoch %d", self._node_id, self.epoch)
            except (MetadataStoreError, RequestError) as error:
                logger.warning("broker %d could not register, and tries again: %s", self._node_id, error)
                await asyncio.sleep(RETRY_S)

    async def _register_when_free(self) -> None:
        while True:
            try:
                await self._register()
                return
            except RequestError:
                # An earlier process was killed, and its lease has not expired yet; or another one lives.
                await asyncio.sleep(RETRY_S)

    async def _register(self) -> None:
        key = keys.broker(self._node_id)
        found = (await self._metadata.store.get(key)).items.get(key)
        lease = await self._metadata.store.lease(self._ttl_s)
        try:
            expect, writes = registrations.registration(
                self._node_id,
                found,
                incarnation=self._incarnation,
                listeners=self._listeners,
                rack=self._rack,
                clean_since=self._clean_since,
                lease=lease.id,
            )
            outcome = await self._metadata.txn(expect, writes)
            if not outcome.committed:
                # Another process was faster; or the key vanished, and the next attempt succeeds.
                registrations.check_free(self._node_id, outcome.current.get(key), self._incarnation)
                raise MetadataStoreError("the registration was changed meanwhile")
        except BaseException:
            await asyncio.shield(_revoked(lease))
            raise
        self._lease = lease
        self.epoch = outcome.revision
        self._clean_since = self._clean_since or outcome.revision
        self._epoch_changed()


async def _revoked(lease: Lease) -> None:
    try:
        await lease.revoke()
    except MetadataStoreError as error:
        logger.info("a lease that is not used could not be revoked, and will expire: %s", error)
