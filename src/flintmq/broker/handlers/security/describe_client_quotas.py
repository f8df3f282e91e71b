"""DescribeClientQuotas (48), versions 0 and 1: the quotas that are set, filtered by what they are set for (KIP-546).

A filter names types of entities, each with a name, the default, or any of both. Without `strict`, entities that have
other types as well match too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_cluster_allowed
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.errors import RequestError
from flintmq.metadata.client_quotas import EntityFilter
from flintmq.metadata.quota_entity import QuotaEntity
from flintmq.protocol.messages import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from flintmq.security.authorization.model import AclOperation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Entry = DescribeClientQuotasResponse.EntryData
Entity = DescribeClientQuotasResponse.EntityData
Value = DescribeClientQuotasResponse.ValueData


def handle(
    request: Request, message: DescribeClientQuotasRequest, services: Services
) -> DescribeClientQuotasResponse:
    try:
        check_cluster_allowed(request, services, AclOperation.DESCRIBE_CONFIGS)
        found = _find(message, services)
    except RequestError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=reason_of(error), entries=None
        )
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            Entry(
                entity=[Entity(entity_type=kind, entity_name=name or None) for kind, name in entity.parts],
                values=[Value(key=name, value=value) for name, value in sorted(values.items())],
            )
            for entity, values in found
        ],
    )


def _find(
    message: DescribeClientQuotasRequest, services: Services
) -> list[tuple[QuotaEntity, dict[str, float]]]:
    filters = [EntityFilter(one.entity_type, one.match_type, one.match) for one in message.components]
    return services.client_quotas.describe(filters, strict=message.strict)
