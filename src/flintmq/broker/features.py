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


FEATURES = (
    # That of Apache Kafka 4.3, whose API versions are served.
    Feature("metadata.version", 7, 30, 30),
    # Each transaction has a producer epoch of its own (KIP-890).
    Feature("transaction.version", 0, 2, 2),
)
