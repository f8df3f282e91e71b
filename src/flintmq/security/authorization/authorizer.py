"""What decides whether a client may do something, and the decisions that a session remembers. Pure.

An authorizer answers for all operations on one resource at once. A session keeps the answers until the authorizer's
`generation` changes, so that a client that repeats itself costs one lookup.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from flintmq.security.authorization.acl_index import AclIndex
from flintmq.security.authorization.hosts import canonical_host
from flintmq.security.authorization.model import (
    EVERY_OPERATION,
    AclBinding,
    AclFilter,
    AclOperation,
    AclResource,
)
from flintmq.security.principal import Principal

REMEMBERED_MAX: Final = 1000
"""Resources whose operations one session remembers; beyond that it starts over."""
REMEMBERED_NAME_SIZE_MAX: Final = 256
"""Longer names are decided each time: a client may send names of 32 KB, and topics have shorter ones."""
# Kafka decides on a fixed name first, so that super users pass whatever is denied.
_ANY_NAME: Final = "hardcode"


class Authorizer(Protocol):
    """The interface of the entry points `flintmq.authorizers`."""

    generation: int
    """Changes whenever a decision may have changed: until then sessions use the decisions they have."""

    def operations(self, principal: Principal, host: str, resource: AclResource, name: str) -> int:
        """Return the operations that are allowed on the resource, as bits (`operation_bits`)."""
        ...

    def allows_somewhere(
        self, principal: Principal, host: str, resource: AclResource, operation: AclOperation
    ) -> bool:
        """Return whether the operation is allowed on some resource of the type, whichever it is."""
        ...

    # An authorizer may also have `explain`, as `StandardAuthorizer` has it: the reason in the audit log.


class StandardAuthorizer:
    """Decides by ACLs, as Kafka's authorizer of this name: deny over allow, super users before all."""

    def __init__(self, *, super_users: Iterable[Principal] = (), allow_without_acls: bool = False) -> None:
        self.generation = 0
        self._super_users = frozenset(super_users)
        self._without_acls = EVERY_OPERATION if allow_without_acls else 0
        self._acls: dict[AclBinding, None] = {}
        self._index = AclIndex()

    def __len__(self) -> int:
        return len(self._acls)

    def __contains__(self, acl: AclBinding) -> bool:
        return acl in self._acls

    def acls(self, selected: AclFilter) -> list[AclBinding]:
        exact = selected.exact
        if exact is not None:
            return [exact] if exact in self._acls else []
        return [acl for acl in self._acls if selected.matches(acl)]

    def change(self, *, added: Iterable[AclBinding] = (), removed: Iterable[AclBinding] = ()) -> None:
        """Apply one change: removed ACLs first. ACLs that exist already, or not at all, are passed over."""
        for acl in removed:
            if acl in self._acls:
                del self._acls[acl]
                self._index.remove(acl)
        for acl in added:
            if acl not in self._acls:
                self._acls[acl] = None
                self._index.add(acl)
        self.generation += 1

    def replace(self, acls: Iterable[AclBinding]) -> None:
        """Put these ACLs in force instead of all others."""
        wanted = dict.fromkeys(acls)
        self.change(added=wanted, removed=[acl for acl in self._acls if acl not in wanted])

    def operations(self, principal: Principal, host: str, resource: AclResource, name: str) -> int:
        if principal in self._super_users:
            return EVERY_OPERATION
        return self._index.operations(str(principal), host, resource, name, without_acls=self._without_acls)

    def allows_somewhere(
        self, principal: Principal, host: str, resource: AclResource, operation: AclOperation
    ) -> bool:
        if self.operations(principal, host, resource, _ANY_NAME) >> operation & 1:
            return True
        return self._index.allows_somewhere(str(principal), host, resource, operation)

    def explain(
        self, principal: Principal, host: str, resource: AclResource, name: str, operation: AclOperation
    ) -> str:
        """Return which rule or ACL decides, for the audit log."""
        if principal in self._super_users:
            return f"{principal} is a super user"
        found = self._index.deciding(str(principal), host, resource, name, operation)
        if found is not None:
            return f"ACL: {describe_acl(found)}"
        if self._without_acls and not self._index.has_acls(resource, name):
            return "no ACL is about the resource, and allow.everyone.if.no.acl.found is true"
        return "no ACL allows it"


def describe_acl(acl: AclBinding) -> str:
    pattern = acl.pattern.name.lower()
    return (
        f"{acl.permission.name} {acl.operation.name} to {acl.principal} from {acl.host} on "
        f"{acl.resource.name} {acl.name} ({pattern})"
    )


class SessionRights:
    """The operations that one connection's principal may do, as far as it has asked."""

    __slots__ = ("_generation", "_known", "host", "principal", "topics")

    def __init__(self, principal: Principal, peer_host: str) -> None:
        self.principal = principal
        self.host = canonical_host(peer_host)
        self._generation = -1
        self._known: dict[tuple[int, str], int] = {}
        self.topics: dict[str | bytes, int] = {}
        """Operations on topics by name or id, apart from the others because every Produce and Fetch asks."""

    def refresh(self, generation: int) -> None:
        """Forget everything if it was decided in another generation."""
        if self._generation != generation:
            self._generation = generation
            self._known.clear()
            self.topics.clear()

    def operations(self, authorizer: Authorizer, resource: AclResource, name: str) -> int:
        """Return the operations that are allowed on the resource, as bits."""
        self.refresh(authorizer.generation)
        known = self._known.get((resource, name))
        if known is None:
            known = authorizer.operations(self.principal, self.host, resource, name)
            if len(name) > REMEMBERED_NAME_SIZE_MAX:
                return known
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            self._known[resource, name] = known
        return known

    def remember_topic(self, topic: str | bytes, operations: int) -> None:
        if len(topic) > REMEMBERED_NAME_SIZE_MAX:
            return
        if len(self.topics) >= REMEMBERED_MAX:
            self.topics.clear()
        self.topics[topic] = operations
