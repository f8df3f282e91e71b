"""The cluster's features and their levels (KIP-584): what clients may count on beyond API versions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Feature:
    name: str
    lowest: int
    highest: int
    level: int
    """The finalized one."""


# The metadata version of Apache Kafka 4.3, whose API versions are served.
FEATURES = (Feature("metadata.version", 7, 30, 30),)
