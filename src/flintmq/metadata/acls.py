"""Creating and deleting ACLs in the metadata store.

The key of an ACL is derived from the ACL itself: creating one that exists changes nothing, whoever was first. A
request that fits into one transaction is applied as a whole; a larger one in several, in its order.
"""

from __future__ import annotations

from collections.abc import Iterable

from flintmq.metadata import keys
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.store import Put

_BYTES_RESERVED = 1024


class Acls:
    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    async def create(self, acls: Iterable[keys.AclValue]) -> None:
        """Return once the ACLs are durable and in the image."""
        await self._write((keys.acl(acl), Put(keys.encode(acl))) for acl in acls)

    async def delete(self, acls: Iterable[keys.AclValue]) -> None:
        """Return once the ACLs are gone from the store and the image."""
        await self._write((keys.acl(acl), None) for acl in acls)

    async def _write(self, writes: Iterable[tuple[str, Put | None]]) -> None:
        """Write what is not as wanted yet, in portions that the store takes."""
        store, existing = self._metadata.store, self._metadata.image.acls
        part: dict[str, Put | None] = {}
        room = store.max_bytes - _BYTES_RESERVED
        for key, put in writes:
            if (put is not None) == (key in existing):
                continue
            size = len(key) + (len(put.value) if put is not None else 0)
            if part and (len(part) >= store.max_ops or size > room):
                await self._metadata.write(part)
                part, room = {}, store.max_bytes - _BYTES_RESERVED
            part[key] = put
            room -= size
        if part:
            await self._metadata.write(part)
