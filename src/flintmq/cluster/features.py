"""The cluster's features and their levels (KIP-584): what clients may count on beyond API versions. Pure.

A level is *finalized* for the whole cluster and kept in the metadata store where it is not the highest. It is changed
by UpdateFeatures, by Kafka's rules: upwards freely, downwards only if that is asked for, and never beyond what every
broker supports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from flintmq.errors import ErrorCode, RequestError

METADATA_VERSION: Final = "metadata.version"


class Feature(NamedTuple):
    name: str
    lowest: int
    highest: int


FEATURES: Final = (
    # That of Apache Kafka 4.3, whose API versions are served.
    Feature(METADATA_VERSION, 7, 30),
    # Each transaction has a producer epoch of its own (KIP-890).
    Feature("transaction.version", 0, 2),
)
_SUPPORTED: Final = {feature.name: feature for feature in FEATURES}
_OF_KAFKA: Final = (
    "eligible.leader.replicas.version",
    "group.version",
    "kraft.version",
    "share.version",
    "streams.version",
)
"""Features of Kafka that are not supported here: they are at level 0, and may be set to that."""


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE
    """Kafka's number, as a client sends it."""


def finalized_levels(stored: Mapping[str, int]) -> dict[str, int]:
    """Return the level of each feature. `stored` are those that differ from the highest."""
    return {feature.name: stored.get(feature.name, feature.highest) for feature in FEATURES}


def updated_levels(
    stored: Mapping[str, int], updates: Sequence[FeatureUpdate], *, node_id: int
) -> dict[str, int]:
    """Return what is to be stored after all updates, of which the last for a feature counts.

    RequestError if one of them is not possible: then none is made.
    """
    levels = finalized_levels(stored)
    for update in {update.name: update for update in updates}.values():
        _check(update, levels.get(update.name, 0), node_id)
        if update.name in levels:
            levels[update.name] = update.level
    return {name: level for name, level in levels.items() if level != _SUPPORTED[name].highest}


def _check(update: FeatureUpdate, level: int, node_id: int) -> None:
    """The texts are Kafka's: its tools show them."""
    name, wanted = update.name, update.level
    supported = _SUPPORTED.get(name)
    if update.upgrade_type not in tuple(UpgradeType):
        reason = "The controller does not support the given upgrade type."
    elif wanted < 0:
        reason = "A feature version cannot be less than 0."
    elif supported is None and wanted > 0:
        reason = f"Local controller {node_id} does not support this feature."
    elif supported is None and name not in _OF_KAFKA:
        reason = f"Feature {name} not found."
    elif supported is not None and not supported.lowest <= wanted <= supported.highest:
        reason = f"Local controller {node_id} only supports versions {supported.lowest}-{supported.highest}"
    elif wanted < level and update.upgrade_type == UpgradeType.UPGRADE:
        reason = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    elif wanted > level and update.upgrade_type != UpgradeType.UPGRADE:
        reason = "Can't downgrade to a newer version."
    elif name == METADATA_VERSION and wanted < level:
        is_unsafe = update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE
        raise RequestError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {level} to {wanted}. "
            + (
                "Unsafe metadata downgrade is not supported in this version."
                if is_unsafe
                else "Refusing to perform the requested downgrade because it might delete metadata information."
            ),
        )
    else:
        return
    raise RequestError(
        ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {wanted} for feature {name}. {reason}"
    )
