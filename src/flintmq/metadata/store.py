"""What brokers know of their cluster, as one small store with revisions; implementations are elsewhere.

Every committed transaction that changes something makes the next revision, and an item's revision is the one
that last wrote it: the token to compare against, meaningful in this store only. A failed transaction, an
empty one, or one that deletes nothing makes no revision. Whoever keeps an image of the store builds it with
`get` and then `watch(after=view.revision)`; nothing is missed between the two.

    MetadataStoreError    (in `errors`)
    ├── Unavailable   surely not applied: it may be tried again
    ├── Uncertain     a transaction that may or may not have been applied: read, then decide
    ├── Compacted     the history asked for is gone, or the store was restored: `get`, then watch again
    ├── LeaseLost     the lease is unknown, revoked or expired
    └── TooLarge      more than `max_ops` or `max_bytes`

This module must not know of topics or brokers, nor of any implementation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from flintmq.errors import MetadataStoreError


class StoreUnavailable(MetadataStoreError):
    """The store cannot answer; nothing was applied."""


class OutcomeUncertain(MetadataStoreError):
    """The transaction may have been applied, or may still turn out to be."""


class RevisionCompacted(MetadataStoreError):
    """The store no longer has the changes after the revision given."""


class LeaseLost(MetadataStoreError):
    """A write named a lease that does not live."""


class TransactionTooLarge(MetadataStoreError):
    """The transaction exceeds the limits of the store."""


@dataclass(frozen=True, slots=True)
class StoreItem:
    value: bytes
    revision: int
    """Of the transaction that wrote it last."""
    lease: int = 0
    """The lease with which it vanishes; 0 for an item that stays."""


@dataclass(frozen=True, slots=True)
class Put:
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class StoreView:
    """All items under a prefix as of one revision, in key order."""

    revision: int
    items: Mapping[str, StoreItem]


@dataclass(frozen=True, slots=True)
class StoreChange:
    """Everything that one revision changed under a prefix; None is a deletion. Without items it is progress:
    nothing under the prefix changed up to this revision."""

    revision: int
    items: Mapping[str, StoreItem | None]


@dataclass(frozen=True, slots=True)
class TxnOutcome:
    committed: bool
    revision: int
    """Of the change made, or of the store where none was made."""
    current: Mapping[str, StoreItem | None] = field(default_factory=dict)
    """The items expected, as they are, when not committed."""


class Lease(Protocol):
    @property
    def id(self) -> int: ...

    @property
    def ttl(self) -> float:
        """Seconds as granted, which may be more than was asked."""
        ...

    def deadline(self) -> float:
        """Monotonic time until which the lease surely lives, if it is never renewed again."""
        ...

    async def lost(self) -> None:
        """Return once the lease is gone for good."""
        ...

    async def revoke(self) -> None:
        """Drop the lease, and its items in one revision. A second call does nothing."""
        ...


class MetadataStore(Protocol):
    @property
    def max_ops(self) -> int:
        """The most writes, and the most comparisons, of one transaction."""
        ...

    @property
    def max_bytes(self) -> int:
        """The most bytes of keys and values of one transaction."""
        ...

    async def get(self, prefix: str, *, stale: bool = False) -> StoreView:
        """Every item whose key begins with `prefix`. `stale` allows an older revision, if that is cheaper."""
        ...

    async def txn(self, expect: Mapping[str, int], writes: Mapping[str, Put | None]) -> TxnOutcome:
        """Do all writes in one revision if every key of `expect` has that revision (0: it is absent)."""
        ...

    def watch(self, prefix: str, *, after: int) -> AsyncIterator[StoreChange]:
        """The revisions after `after`, whole, in order, none twice; it resumes by itself where it can."""
        ...

    async def lease(self, ttl: float) -> Lease: ...

    async def close(self) -> None: ...
