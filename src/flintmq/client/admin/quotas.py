"""Client quotas over the wire: set, listed, deleted (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import check
from flintmq.errors import ProtocolError
from flintmq.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

EXACT, DEFAULT, SPECIFIED = 0, 1, 2

Entity = Mapping[str, str | None]
"""Names by type (`user`, `client-id`, `ip`); None is the default of the type."""


class EntityQuotas(NamedTuple):
    entity: dict[str, str | None]
    quotas: dict[str, float]


class EntitySelection(NamedTuple):
    """Selects the entities that have this type."""

    kind: str
    match_type: int = SPECIFIED
    name: str | None = None


def list_quotas(
    client: ClusterClient, selections: Sequence[EntitySelection] = (), *, strict: bool = False
) -> list[EntityQuotas]:
    """Return the quotas of all entities that match; if `strict`, only of those that have no other type."""
    request = DescribeClientQuotasRequest
    response = client.call(
        request(
            components=[
                request.ComponentData(entity_type=one.kind, match_type=one.match_type, match=one.name)
                for one in selections
            ],
            strict=strict,
        ),
        DescribeClientQuotasResponse,
        lambda one: check(one.error_code, one.error_message),
    )
    return [
        EntityQuotas(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in response.entries or ()
    ]


def alter_quotas(
    client: ClusterClient, entity: Entity, quotas: Mapping[str, float | None], *, validate_only: bool = False
) -> None:
    """Set quotas of one entity; None deletes one. RequestError says what the broker does not accept."""
    request = AlterClientQuotasRequest
    entry = request.EntryData(
        entity=[request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            request.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in quotas.items()
        ],
    )
    client.call_controller(
        request(entries=[entry], validate_only=validate_only), AlterClientQuotasResponse, _judge
    )


def _judge(response: AlterClientQuotasResponse) -> None:
    if not response.entries:
        raise ProtocolError("the broker did not say what became of the quotas")
    for entry in response.entries:
        check(entry.error_code, entry.error_message)
