"""The broker's view of the metadata store: an image kept up to date by watching, and changes through it.

A change is a transaction on the store. It returns to the caller only once the image shows it, so that a client whose
topic was created also finds it here. An outcome that is uncertain is settled before it is returned
(`settled_transactions`): callers see committed or not, or an error that says that it is not known.

A standalone broker stops if its store fails. In a cluster, an outage of the store hurts no traffic: the watch is
resumed until the store is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from flintmq.errors import MetadataStoreError
from flintmq.metadata.image import ClusterImage, ImageDelta
from flintmq.metadata.rooted_store import RootedStore
from flintmq.metadata.settled_transactions import settle
from flintmq.metadata.store import (
    MetadataStore,
    OutcomeUncertain,
    Put,
    RevisionCompacted,
    StoreItem,
    StoreUnavailable,
    TxnOutcome,
)

logger = logging.getLogger(__name__)

ROOT = "/"
RETRY_DELAYS_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Between attempts to reach a store that is unavailable; the last one repeats."""
SETTLE_ATTEMPTS = 30
"""How often an uncertain transaction is tried before its caller learns that its outcome is not known."""


class ClusterMetadata:
    def __init__(
        self,
        store: MetadataStore,
        on_fatal: Callable[[BaseException], object] = lambda error: None,
        *,
        is_standalone: bool = True,
        root: str = ROOT,
    ) -> None:
        """`on_fatal` is called if changes can no longer be followed: the broker must stop.

        Where others use the store too, everything is under `root`, which begins and ends with a slash.
        """
        self.store: MetadataStore = store if root == ROOT else RootedStore(store, root)
        self.is_standalone = is_standalone
        self._on_fatal = on_fatal
        self._failure: Exception | None = None
        self.image = ClusterImage()
        self._revisions: dict[str, int] = {}
        """Of the keys that the image shows."""
        self._subscribers: list[Callable[[ImageDelta], object]] = []
        self._waiting: list[tuple[TxnOutcome, dict[str, int], asyncio.Future[None]]] = []
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read everything, then follow every change."""
        view = await self.store.get(ROOT)
        self._note(view.items)
        self.image.apply(view.revision, view.items)
        self._watching = asyncio.create_task(self._watch(), name="metadata watch")

    def subscribe(self, subscriber: Callable[[ImageDelta], object]) -> None:
        """`subscriber` is called on the loop for each revision, after the image took it in."""
        self._subscribers.append(subscriber)

    def revision_of(self, key: str) -> int:
        """Return the revision of a key that the image shows, 0 if it is absent: what a change of it expects."""
        return self._revisions.get(key, 0)

    async def txn(self, expect: Mapping[str, int], writes: Mapping[str, Put | None]) -> TxnOutcome:
        """Change the store; return once the image shows the outcome.

        StoreUnavailable if nothing was changed, OutcomeUncertain if that could not be found out.
        """
        try:
            outcome = await self.store.txn(expect, writes)
        except OutcomeUncertain as error:
            outcome = await self._settle(expect, writes, error)
        await self._shown(outcome, writes)
        return outcome

    async def write(self, writes: Mapping[str, Put | None]) -> None:
        """Write whatever the keys hold; return once the image shows it. There are up to `max_ops` of them.

        The keys are compared nevertheless: otherwise a transaction that is uncertain and applied late would undo
        what others have written since.
        """
        while not (await self.txn({key: self.revision_of(key) for key in writes}, writes)).committed:
            # The image shows why by now. Another write was faster; each round lets one through.
            pass

    async def _settle(
        self, expect: Mapping[str, int], writes: Mapping[str, Put | None], error: OutcomeUncertain
    ) -> TxnOutcome:
        for attempt in range(SETTLE_ATTEMPTS):
            await asyncio.sleep(_retry_delay_s(attempt))
            try:
                return await settle(self.store, expect, writes)
            except OutcomeUncertain:
                continue
            except StoreUnavailable:
                if self.is_standalone:
                    # The local store does not come back.
                    break
        raise error

    # ---- waiting for the image

    async def _shown(self, outcome: TxnOutcome, writes: Mapping[str, Put | None]) -> None:
        """Return once the image shows what the transaction wrote, or what it found instead.

        The store's revision alone is not waited for: where others use the store too, changes of theirs make
        revisions that the watch does not report.
        """
        if self._failure is not None:
            raise OutcomeUncertain(f"changes are no longer followed: {self._failure}")
        if outcome.committed:
            awaited = {key: 0 if put is None else outcome.revision for key, put in writes.items()}
        else:
            awaited = {key: 0 if item is None else item.revision for key, item in outcome.current.items()}
        if not self._shows(outcome, awaited):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((outcome, awaited, future))
            await future

    def _shows(self, outcome: TxnOutcome, awaited: Mapping[str, int]) -> bool:
        if self.image.revision >= outcome.revision:
            return True
        for key, revision in awaited.items():
            shown = self._revisions.get(key, 0)
            if revision:
                if self.image.revision < revision:
                    return False
            elif 0 < shown <= outcome.revision:
                # The key is deleted in the store, and the image does not know it yet.
                return False
        return True

    def _note(self, items: Mapping[str, StoreItem | None]) -> None:
        for key, item in items.items():
            if item is None:
                self._revisions.pop(key, None)
            else:
                self._revisions[key] = item.revision

    # ---- following the store

    async def _watch(self) -> None:
        attempt = 0
        try:
            while True:
                try:
                    async for change in self.store.watch(ROOT, after=self.image.revision):
                        attempt = 0
                        self._note(change.items)
                        self._publish(self.image.apply(change.revision, change.items))
                except RevisionCompacted:
                    await self._reload_when_possible()
                except StoreUnavailable as error:
                    if self.is_standalone:
                        raise
                    if attempt == 0:
                        logger.warning("the metadata store cannot be reached, and is tried again: %s", error)
                    await asyncio.sleep(_retry_delay_s(attempt))
                    attempt += 1
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """The watch ends by cancellation only; otherwise the image would silently grow old."""
        self._failure = error
        logger.critical("changes of the metadata are no longer followed", exc_info=error)
        waiting, self._waiting = self._waiting, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(OutcomeUncertain(f"changes are no longer followed: {error}"))
        self._on_fatal(error)

    def _publish(self, delta: ImageDelta) -> None:
        """ORDER: subscribers, which keep in step with the image, are called before waiting transactions return."""
        for subscriber in self._subscribers:
            subscriber(delta)
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for outcome, awaited, future in waiting:
            if not self._shows(outcome, awaited):
                self._waiting.append((outcome, awaited, future))
            elif not future.done():
                future.set_result(None)

    async def _reload_when_possible(self) -> None:
        attempt = 0
        while True:
            try:
                await self._reload()
                return
            except StoreUnavailable:
                if self.is_standalone:
                    raise
                await asyncio.sleep(_retry_delay_s(attempt))
                attempt += 1

    async def _reload(self) -> None:
        """History is gone: compare with everything as it is now, key by key."""
        view = await self.store.get(ROOT)
        if view.revision < self.image.revision:
            # Broker epochs and leader epochs would repeat, and mean something else.
            raise MetadataStoreError(
                f"the metadata store is at revision {view.revision}, and was at {self.image.revision} before: "
                "it was restored from a backup, and the broker must not go on with it"
            )
        fresh = ClusterImage()
        fresh.apply(view.revision, view.items)
        delta = fresh.delta_from(self.image)
        self._revisions.clear()
        self._note(view.items)
        self.image.become(fresh)
        self._publish(delta)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for _, _, future in self._waiting:
            future.cancel()
        await self.store.close()


def _retry_delay_s(attempt: int) -> float:
    return RETRY_DELAYS_S[min(attempt, len(RETRY_DELAYS_S) - 1)]
