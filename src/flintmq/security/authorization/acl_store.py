"""What requests about ACLs need of an authorizer that has some."""

from __future__ import annotations

from typing import Protocol

from flintmq.security.authorization.model import AclBinding, AclFilter


class AclStore(Protocol):
    """The ACLs of an authorizer that has some."""

    def acls(self, selected: AclFilter) -> list[AclBinding]: ...

    async def create(self, acls: list[AclBinding]) -> None:
        """Return once the ACLs are durable and in force. Raise RequestError if they cannot be changed."""
        ...

    async def delete(self, acls: list[AclBinding]) -> None:
        """Return once the ACLs are gone. Raise RequestError if they cannot be changed."""
        ...
