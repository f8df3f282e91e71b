"""The broker's view of the metadata store: an image kept up to date by watching, and changes through it.

A change is a txn on the store; it is done for the caller only once the image shows it, so that whoever was
told of a new topic also finds it here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from flintmq.metadata.image import ClusterImage, ImageDelta
from flintmq.metadata.store import MetadataStore, OutcomeUncertain, Put, RevisionCompacted, TxnOutcome

logger = logging.getLogger(__name__)

ROOT = "/"


class ClusterMetadata:
    def __init__(
        self, store: MetadataStore, on_fatal: Callable[[BaseException], object] = lambda error: None
    ) -> None:
        """`on_fatal` is told if changes can no longer be followed: the broker must stop."""
        self.store = store
        self._on_fatal = on_fatal
        self._failure: Exception | None = None
        self.image = ClusterImage()
        self._subscribers: list[Callable[[ImageDelta], object]] = []
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read everything, then follow every change."""
        view = await self.store.get(ROOT)
        self.image.apply(view.revision, view.items)
        self._watching = asyncio.create_task(self._watch(), name="metadata watch")

    def subscribe(self, subscriber: Callable[[ImageDelta], object]) -> None:
        """`subscriber` is called on the loop for each revision, after the image took it in."""
        self._subscribers.append(subscriber)

    async def txn(self, expect: Mapping[str, int], writes: Mapping[str, Put | None]) -> TxnOutcome:
        """Change the store; returns once the image shows the outcome."""
        outcome = await self.store.txn(expect, writes)
        await self.reached(outcome.revision)
        return outcome

    async def reached(self, revision: int) -> None:
        if self._failure is not None:
            raise OutcomeUncertain(f"changes are no longer followed: {self._failure}")
        if self.image.revision < revision:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((revision, future))
            await future

    async def _watch(self) -> None:
        try:
            while True:
                try:
                    async for change in self.store.watch(ROOT, after=self.image.revision):
                        self._publish(self.image.apply(change.revision, change.items))
                except RevisionCompacted:
                    await self._reload()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """The watch ends by cancellation only; otherwise the image would silently grow old."""
        self._failure = error
        logger.critical("changes of the metadata are no longer followed", exc_info=error)
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(OutcomeUncertain(f"changes are no longer followed: {error}"))
        self._on_fatal(error)

    def _publish(self, delta: ImageDelta) -> None:
        """ORDER: those who keep in step with the image come before those who wait for it."""
        for subscriber in self._subscribers:
            subscriber(delta)
        waiting, self._waiting = self._waiting, []
        for wanted, future in waiting:
            if wanted > self.image.revision:
                self._waiting.append((wanted, future))
            elif not future.done():
                future.set_result(None)

    async def _reload(self) -> None:
        """History is gone: compare with everything as it is now, key by key."""
        view = await self.store.get(ROOT)
        fresh = ClusterImage()
        fresh.apply(view.revision, view.items)
        gone = [topic for topic in self.image.topics.values() if topic.id not in fresh.topics_by_id]
        delta = ImageDelta(
            topics_changed=list(fresh.topics.values()),
            topics_deleted=gone,
            topic_configs=sorted({*fresh.topic_configs, *self.image.topic_configs}),
            broker_configs=True,
            scram=True,
            quotas=True,
            acls_added=list(fresh.acls.values()),
            acls_removed=list(self.image.acls.values()),
            tokens=sorted({*fresh.tokens, *self.image.tokens}),
        )
        self.image.become(fresh)
        self._publish(delta)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for _, future in self._waiting:
            future.cancel()
        await self.store.close()
