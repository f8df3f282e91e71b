"""CreatePartitions (37), versions 0–3: more partitions for topics that exist.

The count is the new total and must be larger than the old one; replicas of the new partitions may be placed by
hand. `validate_only` checks without doing. A topic that comes twice is refused. In version 3 partitions beyond the
client's `controller_mutation_rate` get THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_allowed
from flintmq.broker.limits import gather_in_turns
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.broker.throttling import MutationQuota
from flintmq.errors import ErrorCode, FlintError, error_code_of
from flintmq.protocol.messages import CreatePartitionsRequest, CreatePartitionsResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

_FIRST_WITH_QUOTA_ERROR = 3

Result = CreatePartitionsResponse.CreatePartitionsTopicResult


async def handle(
    request: Request, message: CreatePartitionsRequest, services: Services
) -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in message.topics)
    results = [
        Result(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name.")
        for name, count in counts.items()
        if count > 1
    ]
    quota = MutationQuota(request, _FIRST_WITH_QUOTA_ERROR)
    results += await gather_in_turns(
        _add(request, topic, services, quota, validate_only=message.validate_only)
        for topic in message.topics
        if counts[topic.name] == 1
    )
    return CreatePartitionsResponse(results=results)


async def _add(
    request: Request,
    topic: CreatePartitionsRequest.CreatePartitionsTopic,
    services: Services,
    quota: MutationQuota,
    *,
    validate_only: bool,
) -> Result:
    assignments = (
        None if topic.assignments is None else [assigned.broker_ids for assigned in topic.assignments]
    )
    try:
        check_allowed(request, services, AclOperation.ALTER, AclResource.TOPIC, topic.name)
        if quota.is_limited:
            await services.topics.add_partitions(topic.name, topic.count, assignments, validate_only=True)
            quota.record(topic.count - len(services.topics.find(topic.name).partitions))
        await services.topics.add_partitions(
            topic.name, topic.count, assignments, validate_only=validate_only
        )
    except (FlintError, OSError) as error:
        return Result(name=topic.name, error_code=error_code_of(error), error_message=reason_of(error))
    return Result(name=topic.name)
