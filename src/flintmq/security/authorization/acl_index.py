"""ACLs arranged so that a decision costs a few dictionary lookups, however many there are. Pure.

For a resource these patterns apply: the literal one of its name, the literal `*`, and every prefix of its name that
has ACLs. Prefixes are looked up by their lengths, of which there are few. Within a pattern ACLs are kept by principal
and host as two bit fields, the operations allowed and those denied, so that one decision covers all operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from flintmq.security.authorization.hosts import canonical_host
from flintmq.security.authorization.model import (
    EVERY_OPERATION,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    allowed_bits,
    denied_bits,
)

_DENY: Final = AclPermission.DENY


class _Rules:
    """The ACLs of one pattern."""

    __slots__ = ("acls", "by_client")

    def __init__(self) -> None:
        # Counted: two spellings of an address are two ACLs of one host.
        self.acls: dict[tuple[str, str], Counter[tuple[AclOperation, AclPermission]]] = {}
        self.by_client: dict[tuple[str, str], tuple[int, int]] = {}
        """Operations allowed and denied, by principal and host."""

    def change(self, acl: AclBinding, client: tuple[str, str], count: int) -> None:
        entries = self.acls.setdefault(client, Counter())
        entry = acl.operation, acl.permission
        entries[entry] += count
        if entries[entry] <= 0:
            del entries[entry]
        if not entries:
            del self.acls[client]
            self.by_client.pop(client, None)
            return
        allowed = denied = 0
        for operation, permission in entries:
            if permission is _DENY:
                denied |= denied_bits(operation)
            else:
                allowed |= allowed_bits(operation)
        self.by_client[client] = allowed, denied


class _Patterns:
    """The patterns of one type of resource."""

    __slots__ = ("_length_counts", "by_client", "lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Rules] = {}
        self.prefixed: dict[str, _Rules] = {}
        self._length_counts: Counter[int] = Counter()
        self.lengths: list[int] = []
        """Of the prefixes, each once, ascending."""
        self.by_client: dict[tuple[str, str], dict[tuple[AclPattern, str], _Rules]] = {}

    def change(self, acl: AclBinding, count: int) -> None:
        patterns = self.prefixed if acl.pattern is AclPattern.PREFIXED else self.literal
        rules = patterns.get(acl.name)
        if rules is None:
            rules = patterns[acl.name] = _Rules()
            if patterns is self.prefixed:
                self._count_length(len(acl.name), 1)
        client = acl.principal, canonical_host(acl.host)
        rules.change(acl, client, count)
        named = self.by_client.setdefault(client, {})
        if client in rules.acls:
            named[acl.pattern, acl.name] = rules
        else:
            named.pop((acl.pattern, acl.name), None)
            if not named:
                del self.by_client[client]
        if not rules.acls:
            del patterns[acl.name]
            if patterns is self.prefixed:
                self._count_length(len(acl.name), -1)

    def _count_length(self, length: int, count: int) -> None:
        self._length_counts[length] += count
        if not self._length_counts[length]:
            del self._length_counts[length]
        self.lengths = sorted(self._length_counts)

    def matching(self, name: str) -> list[_Rules]:
        found = []
        literal = self.literal
        if (rules := literal.get(name)) is not None:
            found.append(rules)
        if name != WILDCARD and (rules := literal.get(WILDCARD)) is not None:
            found.append(rules)
        size = len(name)
        for length in self.lengths:
            if length > size:
                break
            if (rules := self.prefixed.get(name[:length])) is not None:
                found.append(rules)
        return found


class AclIndex:
    def __init__(self) -> None:
        self._resources = {resource: _Patterns() for resource in AclResource}

    def add(self, acl: AclBinding) -> None:
        self._resources[acl.resource].change(acl, 1)

    def remove(self, acl: AclBinding) -> None:
        """Remove an ACL that was added."""
        self._resources[acl.resource].change(acl, -1)

    def operations(
        self, principal: str, host: str, resource: AclResource, name: str, *, without_acls: int
    ) -> int:
        """Return the operations that are allowed, as bits; `without_acls` for a resource that no ACL is about."""
        matching = self._resources[resource].matching(name)
        if not matching:
            return without_acls
        allowed = denied = 0
        for rules in matching:
            by_client = rules.by_client
            for client in (
                (principal, host),
                (principal, WILDCARD),
                (WILDCARD_PRINCIPAL, host),
                (WILDCARD_PRINCIPAL, WILDCARD),
            ):
                found = by_client.get(client)
                if found is not None:
                    allowed |= found[0]
                    denied |= found[1]
        return allowed & ~denied & EVERY_OPERATION

    def has_acls(self, resource: AclResource, name: str) -> bool:
        return bool(self._resources[resource].matching(name))

    def deciding(
        self, principal: str, host: str, resource: AclResource, name: str, operation: AclOperation
    ) -> AclBinding | None:
        """Return the ACL that decides: one that denies, else one that allows; None if there is neither.

        Slower than `operations`, and only for explanations. The host is in its canonical form.
        """
        patterns = self._resources[resource]
        named = [
            (AclPattern.LITERAL, one, patterns.literal.get(one)) for one in dict.fromkeys((name, WILDCARD))
        ]
        prefixes = [name[:length] for length in patterns.lengths if length <= len(name)]
        named += [(AclPattern.PREFIXED, one, patterns.prefixed.get(one)) for one in prefixes]
        clients = [(who, where) for who in (principal, WILDCARD_PRINCIPAL) for where in (host, WILDCARD)]
        allowing: AclBinding | None = None
        for pattern, pattern_name, rules in named:
            for client in clients:
                for listed, permission in rules.acls.get(client, ()) if rules is not None else ():
                    bits = denied_bits(listed) if permission is _DENY else allowed_bits(listed)
                    if not bits >> operation & 1:
                        continue
                    acl = AclBinding(resource, pattern_name, pattern, *client, listed, permission)
                    if permission is _DENY:
                        return acl
                    allowing = allowing or acl
        return allowing

    def allows_somewhere(
        self, principal: str, host: str, resource: AclResource, operation: AclOperation
    ) -> bool:
        """Return whether an ACL allows the operation on a resource that no other ACL denies altogether.

        An allowed pattern counts unless the same name or a prefix of it is denied. Implied operations do not count.
        """
        patterns = self._resources[resource]
        clients = [(who, where) for who in (principal, WILDCARD_PRINCIPAL) for where in (host, WILDCARD)]
        if _has(patterns.literal.get(WILDCARD), clients, operation, _DENY):
            return False
        if _has(patterns.literal.get(WILDCARD), clients, operation, AclPermission.ALLOW):
            return True
        for client in clients:
            for (pattern, name), rules in patterns.by_client.get(client, {}).items():
                if not _has(rules, clients, operation, AclPermission.ALLOW):
                    continue
                if pattern is AclPattern.LITERAL and _has(rules, clients, operation, _DENY):
                    continue
                if not any(
                    _has(patterns.prefixed.get(name[:length]), clients, operation, _DENY)
                    for length in patterns.lengths
                    if length <= len(name)
                ):
                    return True
        return False


def _has(
    rules: _Rules | None,
    clients: Sequence[tuple[str, str]],
    operation: AclOperation,
    permission: AclPermission,
) -> bool:
    """Return whether the rules hold such an ACL for one of the clients."""
    if rules is None:
        return False
    for client in clients:
        entries = rules.acls.get(client)
        if entries is not None and (
            (operation, permission) in entries or (AclOperation.ALL, permission) in entries
        ):
            return True
    return False
