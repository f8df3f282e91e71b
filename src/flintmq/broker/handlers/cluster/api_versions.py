"""ApiVersions (18), versions 0–4: what this broker serves, before anything else is said.

A request in a version too new comes here as None and is answered in version 0 with UNSUPPORTED_VERSION and the
list, so that the client can choose (KIP-511). From version 3 on the client names its software, and is told the
cluster's features (KIP-584).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flintmq.broker.request import Request
from flintmq.cluster.features import FEATURES, finalized_levels
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_SIZE_MAX = 64
"""Of a name or version that is kept with the connection and shown in metrics; a client chooses them."""


def handle(request: Request, message: ApiVersionsRequest | None, services: Services) -> ApiVersionsResponse:
    from flintmq.broker.apis import ADVERTISED, served  # not earlier: that list names this handler

    response = ApiVersionsResponse()
    if message is None:
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
    elif request.version >= 3:
        name, version = message.client_software_name, message.client_software_version
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
            response.error_code = ErrorCode.INVALID_REQUEST
            return response
        request.session.client_software = (name[:SOFTWARE_SIZE_MAX], version[:SOFTWARE_SIZE_MAX])
    if message is not None and request.session.sasl is not None:
        request.session.sasl.versions_sent()
    response.api_keys = [
        ApiVersionsResponse.ApiVersion(
            api_key=api.key, min_version=api.advertised[0], max_version=api.advertised[1]
        )
        for api in served(ADVERTISED, services.configs.broker)
    ]
    response.supported_features = [
        ApiVersionsResponse.SupportedFeatureKey(name=f.name, min_version=f.lowest, max_version=f.highest)
        for f in FEATURES
    ]
    response.finalized_features = [
        ApiVersionsResponse.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in finalized_levels(services.metadata.image.features).items()
        # A feature at level 0 is not finalized, as in Kafka.
        if level > 0
    ]
    response.finalized_features_epoch = services.metadata.image.revision
    return response
