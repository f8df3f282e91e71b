"""AlterClientQuotas (49), versions 0 and 1: quotas are set and deleted (KIP-546).

Each entity has a result of its own, and either all of its quotas are changed or none. They are in force for requests
that are dispatched after the response, on open connections too. `validate_only` checks without changing anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_cluster_allowed
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata.client_quotas import EntityParts, QuotaAlteration
from flintmq.protocol.messages import AlterClientQuotasRequest, AlterClientQuotasResponse
from flintmq.security.authorization.model import AclOperation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Entry = AlterClientQuotasResponse.EntryData
Entity = AlterClientQuotasResponse.EntityData


async def handle(
    request: Request, message: AlterClientQuotasRequest, services: Services
) -> AlterClientQuotasResponse:
    alterations = [
        QuotaAlteration(
            tuple((one.entity_type, one.entity_name) for one in entry.entity),
            [(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        for entry in message.entries
    ]
    try:
        check_cluster_allowed(request, services, AclOperation.ALTER_CONFIGS)
        results = await services.client_quotas.alter(alterations, validate_only=message.validate_only)
    except RequestError as error:
        results = [(alteration.entity, error) for alteration in alterations]
    return AlterClientQuotasResponse(entries=[_entry(entity, error) for entity, error in results])


def _entry(entity: EntityParts, error: RequestError | None) -> Entry:
    return Entry(
        entity=[Entity(entity_type=kind, entity_name=name) for kind, name in entity],
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else reason_of(error),
    )
