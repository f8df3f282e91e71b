"""Client quotas in the metadata store: described and changed by Kafka's rules (KIP-546).

A quota limits a rate: bytes written or read, time on the event loop, partitions created or deleted, connections
created. How a limit is enforced is known elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from ipaddress import ip_address
from itertools import islice
from typing import Final, NamedTuple

from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata import keys
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.quota_entity import CLIENT_ID, DEFAULT, IP, USER, QuotaEntity
from flintmq.metadata.store import Put

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

ALTERATIONS_MAX: Final = 1000
"""Entities that one request changes."""
NAME_SIZE_MAX: Final = 4096
_WRITES_PER_TXN: Final = 32
_ATTEMPTS_MAX: Final = 8
_FRACTION_MIN: Final = 1e-6
_LONG_MAX: Final = float(1 << 63)
_INT_MAX: Final = float((1 << 31) - 1)

# The largest value of those that must be whole, and Kafka's name of their type; None for those that need not be.
_CLIENT_QUOTAS: Final[dict[str, tuple[float, str] | None]] = {
    PRODUCER_BYTE_RATE: (_LONG_MAX, "a LONG"),
    CONSUMER_BYTE_RATE: (_LONG_MAX, "a LONG"),
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_IP_QUOTAS: Final[dict[str, tuple[float, str] | None]] = {CONNECTION_CREATION_RATE: (_INT_MAX, "an INT")}

CLIENT_QUOTA_NAMES: Final = tuple(_CLIENT_QUOTAS)
IP_QUOTA_NAMES: Final = tuple(_IP_QUOTAS)


class MatchType(IntEnum):
    """How DescribeClientQuotas filters one type of entity."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2
    """Any name, and the default."""


class EntityFilter(NamedTuple):
    kind: str
    match_type: int
    name: str | None


EntityParts = tuple[tuple[str, str | None], ...]
"""Types and names as a client sends them; None is the default."""


class QuotaAlteration(NamedTuple):
    entity: EntityParts
    values: Sequence[tuple[str, float | None]]
    """By quota; None deletes one."""


class ClientQuotas:
    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    def describe(
        self, filters: Sequence[EntityFilter], *, strict: bool
    ) -> list[tuple[QuotaEntity, dict[str, float]]]:
        """Return the entities that match every filter; if `strict`, only those that have no other part."""
        wanted = _checked_filters(filters)
        found = [
            (entity, values)
            for entity, values in self._metadata.image.quotas.items()
            if _matches(entity, wanted, strict=strict)
        ]
        return sorted(found, key=lambda one: one[0].parts)

    async def alter(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool
    ) -> list[tuple[EntityParts, RequestError | None]]:
        """Change quotas; return the error of each entity, None where it succeeded."""
        if len(alterations) > ALTERATIONS_MAX:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"One request changes the quotas of up to {ALTERATIONS_MAX} entities; send several.",
            )
        results: dict[EntityParts, RequestError | None] = {}
        changes: dict[EntityParts, tuple[QuotaEntity, dict[str, float | None]]] = {}
        for alteration in alterations:
            # As Kafka has it, a type that is named twice has the last name.
            parts = tuple(sorted(dict(alteration.entity).items()))
            try:
                if parts in results:
                    changes.pop(parts, None)
                    raise _invalid(f"Ignoring duplicate entity {dict(parts)}")
                results[parts] = None
                entity = _checked_entity(parts)
                changes[parts] = (entity, _checked_values(entity, alteration.values))
            except RequestError as error:
                results[parts] = error
        if not validate_only:
            left = iter(changes.values())
            while some := list(islice(left, _WRITES_PER_TXN)):
                await self._write(some)
        return list(results.items())

    async def _write(self, changes: Sequence[tuple[QuotaEntity, dict[str, float | None]]]) -> None:
        """Write what differs, unless another change of the same entities came in between: then decide again."""
        for _ in range(_ATTEMPTS_MAX):
            image = self._metadata.image
            expect: dict[str, int] = {}
            writes: dict[str, Put | None] = {}
            for entity, values in changes:
                old = image.quotas.get(entity, {})
                merged = {**old, **values}
                new = {name: value for name, value in merged.items() if value is not None}
                if new != old:
                    key = keys.quota(entity)
                    expect[key] = image.quota_revisions.get(entity, 0)
                    writes[key] = Put(keys.encode(new)) if new else None
            if not writes or (await self._metadata.txn(expect, writes)).committed:
                return
        raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "The quotas are being changed by others; try again.")


def _invalid(text: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, text)


def _checked_entity(parts: EntityParts) -> QuotaEntity:
    if not parts:
        raise _invalid("Invalid empty client quota entity")
    names: dict[str, str] = {}
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind[:100]}")
        if name is None:
            names[kind] = DEFAULT
        elif not name:
            raise _invalid(f"Empty {kind} not supported")
        elif len(name) > NAME_SIZE_MAX:
            raise _invalid(f"A {kind} must not be longer than {NAME_SIZE_MAX} characters")
        else:
            names[kind] = name
    entity = QuotaEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))
    if entity.ip is None:
        return entity
    if entity.user is not None or entity.client_id is not None:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    if entity.ip != DEFAULT:
        try:
            ip_address(entity.ip)
        except ValueError:
            # Kafka takes a host name as well, and looks it up whenever it loads the quotas.
            raise _invalid(f"{entity.ip[:100]} is not a valid IP address.") from None
    return entity


def _checked_values(
    entity: QuotaEntity, values: Sequence[tuple[str, float | None]]
) -> dict[str, float | None]:
    known = _CLIENT_QUOTAS if entity.ip is None else _IP_QUOTAS
    checked: dict[str, float | None] = {}
    for name, value in values:
        if name in checked:
            raise _invalid(f"Duplicate quota key {name[:100]}; the quotas of this entity are not changed")
        if value is not None:
            _check_value(known, name, value)
        checked[name] = value
    return checked


def _check_value(known: dict[str, tuple[float, str] | None], name: str, value: float) -> None:
    if name not in known:
        raise _invalid(f"Invalid configuration key {name[:100]}")
    if value <= 0:
        raise _invalid(f"Quota {name} must be greater than 0")
    if math.isnan(value):
        raise _invalid(f"Quota {name} must be a number")
    whole = known[name]
    if whole is None:
        if math.isinf(value):
            raise _invalid(f"Quota {name} must be finite; delete the quota to have no limit")
        return
    largest, words = whole
    if value > largest:
        raise _invalid(f"Proposed value for {name} is too large for {words}.")
    if value % 1.0 > _FRACTION_MIN:
        raise _invalid(f"{name} cannot be a fractional value.")


# ---- filters


def _checked_filters(filters: Sequence[EntityFilter]) -> dict[str, str | None]:
    """Return the name that each type must have; None for any."""
    wanted: dict[str, str | None] = {}
    for kind, match_type, name in filters:
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in wanted:
            raise _invalid(f"Entity type {kind[:100]} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind[:100]}")
        if match_type == MatchType.EXACT:
            if name is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            # No entity has an empty name, which stands for the default here.
            wanted[kind] = name or "\0"
        elif match_type == MatchType.DEFAULT:
            if name is not None:
                raise _invalid("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
            wanted[kind] = DEFAULT
        elif match_type == MatchType.SPECIFIED:
            if name is not None:
                raise _invalid("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
            wanted[kind] = None
        else:
            raise _invalid(f"Unknown match type {match_type}")
    if IP in wanted and len(wanted) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
    return wanted


def _matches(entity: QuotaEntity, wanted: dict[str, str | None], *, strict: bool) -> bool:
    names = dict(entity.parts)
    if strict and len(names) != len(wanted):
        return False
    return all(kind in names and name in (None, names[kind]) for kind, name in wanted.items())
