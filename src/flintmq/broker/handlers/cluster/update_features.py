"""UpdateFeatures (57), versions 0–2: change the finalized levels of features (KIP-584, KIP-1022).

All updates are made, or none. Version 0 cannot downgrade: Kafka's controller ignores its flag. Up to version 1 the
response repeats the features where all of them were updated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_cluster_allowed
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.cluster.features import FeatureUpdate, updated_levels
from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata import keys
from flintmq.metadata.store import Put
from flintmq.protocol.messages import UpdateFeaturesRequest, UpdateFeaturesResponse
from flintmq.security.authorization.model import AclOperation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Result = UpdateFeaturesResponse.UpdatableFeatureResult

_LAST_WITH_RESULTS = 1
_ATTEMPTS_MAX = 8


async def handle(
    request: Request, message: UpdateFeaturesRequest, services: Services
) -> UpdateFeaturesResponse:
    check_cluster_allowed(request, services, AclOperation.ALTER)
    updates = [
        FeatureUpdate(one.feature, one.max_version_level, one.upgrade_type) for one in message.feature_updates
    ]
    try:
        await _update(updates, services, validate_only=message.validate_only)
    except RequestError as error:
        reason = "The update failed for all features since the following feature had an error: "
        return UpdateFeaturesResponse(error_code=error.code, error_message=reason + (reason_of(error) or ""))
    response = UpdateFeaturesResponse(error_message=None)
    if request.version <= _LAST_WITH_RESULTS:
        response.results = [Result(feature=update.name, error_message=None) for update in updates]
    return response


async def _update(updates: list[FeatureUpdate], services: Services, *, validate_only: bool) -> None:
    metadata = services.metadata
    for _ in range(_ATTEMPTS_MAX):
        stored = metadata.image.features
        levels = updated_levels(stored, updates, node_id=services.node_id)
        if validate_only or levels == stored:
            return
        put = Put(keys.encode(levels)) if levels else None
        expect = {keys.FEATURES: metadata.revision_of(keys.FEATURES)}
        if (await metadata.txn(expect, {keys.FEATURES: put})).committed:
            return
    raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "The features are being changed by others; try again.")
