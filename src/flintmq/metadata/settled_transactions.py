"""Finding out whether a transaction of ours was applied, after the store did not say.

A transaction that ended as `OutcomeUncertain` may be applied already, may never be, or may be applied later. Reading
alone cannot rule out the last: the same transaction is tried again instead. It expects the same revisions, so that
at most one of the attempts is applied wherever it changes a key that it expects, and the second attempt keeps the
first from being applied later.

If the second attempt fails, the first was applied exactly if what it wrote is there: the same values under the same
leases, in one revision. So a value that another broker could write as well, and that must not be taken for ours, has
a token of the writer in it (`keys.ProducerIdsValue`); where a value was already replaced by a later change, the
transaction counts as failed, and its caller decides again on what is there now.

A transaction that only expects keys to be absent can be applied twice if they are deleted between the attempts. Where
that matters, it expects a key of its own besides, which it deletes (`keys.CreatingValue`).
"""

from __future__ import annotations

from collections.abc import Mapping

from flintmq.metadata.store import MetadataStore, Put, StoreItem, TxnOutcome


async def settle(
    store: MetadataStore, expect: Mapping[str, int], writes: Mapping[str, Put | None]
) -> TxnOutcome:
    """Return the outcome of a transaction that was tried once before.

    OutcomeUncertain and StoreUnavailable leave it as uncertain as it was.
    """
    outcome = await store.txn(expect, writes)
    if outcome.committed:
        return outcome
    found = dict(outcome.current)
    for key in writes:
        if key not in found:
            found[key] = (await store.get(key)).items.get(key)
    revision = applied_revision(expect, writes, found)
    if revision is None:
        return outcome
    return TxnOutcome(True, revision or outcome.revision)


def applied_revision(
    expect: Mapping[str, int], writes: Mapping[str, Put | None], found: Mapping[str, StoreItem | None]
) -> int | None:
    """Return the revision that a transaction made, judged by what is in the store; None if it was not applied.

    It is 0 for a transaction that only deletes: that leaves no revision behind.
    """
    revisions: set[int] = set()
    for key, put in writes.items():
        item = found[key]
        if put is None:
            if item is not None:
                return None
        elif item is None or item.value != put.value or item.lease != put.lease:
            return None
        elif item.revision <= max(expect.values(), default=0):
            # It has been there since before the transaction.
            return None
        else:
            revisions.add(item.revision)
    if len(revisions) > 1:
        return None
    return revisions.pop() if revisions else 0
