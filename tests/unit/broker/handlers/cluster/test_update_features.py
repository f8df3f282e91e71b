"""UpdateFeatures and what ApiVersions says after it (KIP-584)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from support.broker.single_broker import SingleBroker

Update = UpdateFeaturesRequest.FeatureUpdateKey
TV = "transaction.version"
SAFE_DOWNGRADE = 2


def update(
    broker: SingleBroker, *updates: Update, version: int = 2, validate_only: bool = False
) -> UpdateFeaturesResponse:
    message = UpdateFeaturesRequest(feature_updates=list(updates), validate_only=validate_only)
    return broker.ask(message, UpdateFeaturesResponse, version)


def finalized(broker: SingleBroker) -> dict[str, int]:
    message = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    answer = broker.ask(message, ApiVersionsResponse, 4)
    return {one.name: one.max_version_level for one in answer.finalized_features}


@pytest.mark.parametrize("version", range(3))
def test_the_level_that_a_feature_has_is_accepted(broker: SingleBroker, version: int) -> None:
    answer = update(broker, Update(feature=TV, max_version_level=2), version=version)
    assert (answer.error_code, answer.error_message) == (0, None)
    expected = [(TV, 0, None)] if version <= 1 else []
    assert [(one.feature, one.error_code, one.error_message) for one in answer.results] == expected


def test_a_level_is_kept_and_reported(broker: SingleBroker) -> None:
    assert finalized(broker) == {"metadata.version": 30, TV: 2}
    down = Update(feature=TV, max_version_level=1, upgrade_type=SAFE_DOWNGRADE)
    assert update(broker, down, validate_only=True).error_code == 0
    assert finalized(broker)[TV] == 2
    assert update(broker, down).error_code == 0
    assert finalized(broker)[TV] == 1
    broker.close()
    again = SingleBroker(broker.loop, {}, broker.disk)
    assert finalized(again)[TV] == 1
    none = Update(feature=TV, max_version_level=0, upgrade_type=SAFE_DOWNGRADE)
    assert update(again, none).error_code == 0
    assert finalized(again) == {"metadata.version": 30}
    assert update(again, Update(feature=TV, max_version_level=2)).error_code == 0
    assert again.services.metadata.image.features == {}
    again.close()


@pytest.mark.parametrize("version", range(3))
def test_one_update_that_fails_fails_all(broker: SingleBroker, version: int) -> None:
    answer = update(
        broker,
        Update(feature=TV, max_version_level=2),
        Update(feature="unheard.of", max_version_level=1),
        version=version,
    )
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message is not None
    assert answer.error_message.startswith(
        "The update failed for all features since the following feature had"
    )
    assert answer.results == []
