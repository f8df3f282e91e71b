"""Levels of features change by Kafka's rules (KIP-584)."""

from __future__ import annotations

import pytest

from flintmq.cluster.features import FeatureUpdate, UpgradeType, finalized_levels, updated_levels
from flintmq.errors import ErrorCode, RequestError

TV, MV = "transaction.version", "metadata.version"
SAFE, UNSAFE = UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


@pytest.mark.parametrize(
    ("stored", "updates", "after"),
    [
        ({}, [], {}),
        ({}, [FeatureUpdate(TV, 2), FeatureUpdate(MV, 30)], {}),
        ({}, [FeatureUpdate(TV, 2, SAFE)], {}),
        ({}, [FeatureUpdate(TV, 1, SAFE)], {TV: 1}),
        ({TV: 1}, [FeatureUpdate(TV, 0, UNSAFE)], {TV: 0}),
        ({TV: 1}, [FeatureUpdate(TV, 2)], {}),
        # The last of several counts.
        ({}, [FeatureUpdate(TV, 9), FeatureUpdate(TV, 1, SAFE)], {TV: 1}),
        ({}, [FeatureUpdate("group.version", 0)], {}),
    ],
)
def test_levels_that_may_be(
    stored: dict[str, int], updates: list[FeatureUpdate], after: dict[str, int]
) -> None:
    assert updated_levels(stored, updates, node_id=1) == after


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (FeatureUpdate(TV, 1, 0), "does not support the given upgrade type"),
        (FeatureUpdate(TV, 1, 4), "does not support the given upgrade type"),
        (FeatureUpdate(TV, -1), "cannot be less than 0"),
        (FeatureUpdate(TV, 3), "Local controller 1 only supports versions 0-2"),
        (FeatureUpdate(MV, 6, SAFE), "Local controller 1 only supports versions 7-30"),
        (FeatureUpdate("group.version", 1), "Local controller 1 does not support this feature"),
        (FeatureUpdate("unheard.of", 0), "Feature unheard.of not found"),
        (FeatureUpdate(TV, 0), "without setting the upgrade type"),
        (FeatureUpdate(TV, 2, SAFE), "Can't downgrade to a newer version"),
        (FeatureUpdate(MV, 29, SAFE), "from 30 to 29. Refusing to perform"),
        (FeatureUpdate(MV, 29, UNSAFE), "from 30 to 29. Unsafe metadata downgrade"),
    ],
)
def test_levels_that_may_not_be(update: FeatureUpdate, reason: str) -> None:
    with pytest.raises(RequestError, match=reason) as refused:
        updated_levels({TV: 1}, [FeatureUpdate(TV, 1), update], node_id=1)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION


def test_levels_are_the_highest_unless_something_else_is_stored() -> None:
    assert finalized_levels({}) == {MV: 30, TV: 2}
    assert finalized_levels({TV: 0}) == {MV: 30, TV: 0}
