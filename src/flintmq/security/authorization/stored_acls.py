"""ACLs that live in the metadata store: its changes are put in force, and requests change it."""

from __future__ import annotations

from flintmq.metadata.acls import Acls
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.image import ImageDelta
from flintmq.metadata.keys import AclValue
from flintmq.security.authorization.authorizer import StandardAuthorizer
from flintmq.security.authorization.model import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)


class StoredAcls:
    def __init__(self, metadata: ClusterMetadata, authorizer: StandardAuthorizer) -> None:
        self._changes = Acls(metadata)
        self._authorizer = authorizer
        authorizer.replace(_binding(value) for value in metadata.image.acls.values())
        metadata.subscribe(self._changed)

    def acls(self, selected: AclFilter) -> list[AclBinding]:
        return self._authorizer.acls(selected)

    async def create(self, acls: list[AclBinding]) -> None:
        await self._changes.create([AclValue(*acl) for acl in acls])

    async def delete(self, acls: list[AclBinding]) -> None:
        await self._changes.delete([AclValue(*acl) for acl in acls])

    def _changed(self, delta: ImageDelta) -> None:
        if delta.acls_added or delta.acls_removed:
            self._authorizer.change(
                added=[_binding(value) for value in delta.acls_added],
                removed=[_binding(value) for value in delta.acls_removed],
            )


def _binding(value: AclValue) -> AclBinding:
    return AclBinding(
        AclResource(value.resource),
        value.name,
        AclPattern(value.pattern),
        value.principal,
        value.host,
        AclOperation(value.operation),
        AclPermission(value.permission),
    )
