"""The transactions that create, grow and delete topics; safe from several brokers at once.

Creation. The partitions are written in as many transactions as they need, under the topic's random id, and the
topic's key in the last one: until then they are invisible. In a cluster the broker first writes a claim
(`keys.CreatingValue`); each of its transactions expects the claim, and the last one deletes it. So partitions without
topic and claim are of no creation under way, and the controller may delete them; and a last transaction whose outcome
was uncertain cannot be applied twice, even if the topic was deleted in between.

Growth. Each transaction expects the topic's key, whose revision changes when the growth is committed. Brokers that
grow one topic at the same time write the same invisible partitions, one of them commits, and nothing of the others is
written from then on: a partition in use is never overwritten.

Names that differ only in `.` and `_` are the same in metrics. In a cluster such a name has a key of its own, and the
first creation to write it wins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from flintmq.errors import ErrorCode, MetadataStoreError, RequestError
from flintmq.metadata import keys
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.image import ClusterImage, TopicImage
from flintmq.metadata.store import OutcomeUncertain, Put, StoreItem, StoreUnavailable
from flintmq.records.uuids import encode_uuid

logger = logging.getLogger(__name__)

_EXPECTED_BESIDES = 1
"""Keys that a transaction expects besides its partitions."""
_DELETION_RETRY_S = 1.0


def collision_error(name: str, other: str) -> RequestError:
    return RequestError(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"Topic {name!r} collides with existing topic {other!r}: '.' and '_' are the same in metric names.",
    )


def first_state(image: ClusterImage, replicas: Sequence[int], *, is_standalone: bool) -> keys.PartitionValue:
    """Return the state in which a partition begins: every replica is in sync, since all logs are empty.

    RequestError if none of its brokers is registered any more: no broker could ever lead it.
    """
    if is_standalone:
        return keys.PartitionValue(leader=replicas[0], epoch=0, replicas=list(replicas), isr=list(replicas))
    isr = [node for node in replicas if node in image.brokers]
    if not isr:
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"None of the brokers {list(replicas)} is registered."
        )
    leaders = [node for node in isr if not image.brokers[node].is_draining]
    return keys.PartitionValue(
        leader=leaders[0] if leaders else -1,
        epoch=0,
        replicas=list(replicas),
        isr=isr,
        isr_epochs=[image.brokers[node].epoch for node in isr],
    )


class TopicTransactions:
    def __init__(
        self, metadata: ClusterMetadata, node_id: int, broker_epoch: Callable[[], int] = lambda: 0
    ) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._abandoned: dict[bytes, int] = {}
        """Partition counts of creations that ended without a known outcome, by topic id."""

    async def create(
        self, name: str, topic_id: bytes, placed: Sequence[Sequence[int]], configs: Mapping[str, str | None]
    ) -> int:
        """Return the revision of the topic's key. RequestError if the name is taken."""
        await self._forget_abandoned()
        try:
            return await self._create(name, topic_id, placed, configs)
        except RequestError:
            self._abandoned[topic_id] = len(placed)
            await self._forget_abandoned()
            raise
        except BaseException:
            # Its outcome is not known, or its caller is gone.
            self._abandoned[topic_id] = len(placed)
            raise

    async def _create(
        self, name: str, topic_id: bytes, placed: Sequence[Sequence[int]], configs: Mapping[str, str | None]
    ) -> int:
        claim = {} if self._metadata.is_standalone else await self._claim(name, topic_id)
        if not await self._write_partitions(topic_id, 0, placed, expect=claim):
            raise _fenced(name)
        value = keys.TopicValue(id=encode_uuid(topic_id), partitions=len(placed))
        expect = {keys.topic(name): 0, **claim}
        writes: dict[str, Put | None] = dict.fromkeys(claim)
        if configs:
            writes[keys.topic_config(name)] = Put(keys.encode(dict(configs)))
        if self._has_metric_name(name):
            expect[keys.metric_name(name)] = 0
            writes[keys.metric_name(name)] = Put(keys.encode(keys.MetricNameValue(name=name)))
        # ORDER: the topic's key comes last; until it is there, its partitions are invisible.
        writes[keys.topic(name)] = Put(keys.encode(value))
        outcome = await self._metadata.txn(expect, writes)
        if not outcome.committed:
            raise _refused(name, outcome.current)
        return outcome.revision

    async def grow(self, topic: TopicImage, placed: Sequence[Sequence[int]]) -> None:
        """Add partitions to a topic. RequestError if it was changed or deleted meanwhile."""
        name, have = topic.name, len(topic.partitions)
        expect = {keys.topic(name): topic.revision}
        value = keys.TopicValue(id=encode_uuid(topic.id), partitions=have + len(placed))
        if not await self._write_partitions(topic.id, have, placed, expect=expect):
            raise _changed(name)
        outcome = await self._metadata.txn(expect, {keys.topic(name): Put(keys.encode(value))})
        if not outcome.committed:
            raise _changed(name)

    async def delete(self, topic: TopicImage) -> None:
        """Delete a topic for clients; brokers delete its files after that. RequestError if it is gone already."""
        brokers: list[int] = []
        if not self._metadata.is_standalone:
            brokers = sorted({node for state in topic.partitions for node in state.replicas})
        deleting = keys.DeletingValue(name=topic.name, brokers=brokers)
        writes: dict[str, Put | None] = {
            keys.topic(topic.name): None,
            keys.topic_config(topic.name): None,
            keys.deleting(topic.id): Put(keys.encode(deleting)),
        }
        if self._has_metric_name(topic.name):
            writes[keys.metric_name(topic.name)] = None
        outcome = await self._metadata.txn({keys.topic(topic.name): topic.revision}, writes)
        if not outcome.committed:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic.name!r} is already gone.")
        await self.delete_partitions(topic.id, range(len(topic.partitions)))

    async def delete_partitions(self, topic_id: bytes, indexes: Sequence[int]) -> None:
        """Delete the keys of partitions that no topic has."""
        step = self._metadata.store.max_ops
        for at in range(0, len(indexes), step):
            await self._metadata.write(
                {keys.partition(topic_id, index): None for index in indexes[at : at + step]}
            )

    async def _claim(self, name: str, topic_id: bytes) -> dict[str, int]:
        key = keys.creating(topic_id)
        value = keys.CreatingValue(name=name, node=self._node_id, broker_epoch=self._broker_epoch())
        outcome = await self._metadata.txn({key: 0}, {key: Put(keys.encode(value))})
        return {key: outcome.revision}

    async def _write_partitions(
        self, topic_id: bytes, first: int, placed: Sequence[Sequence[int]], *, expect: Mapping[str, int]
    ) -> bool:
        """Return False if what is expected is no longer so."""
        metadata = self._metadata
        step = metadata.store.max_ops - _EXPECTED_BESIDES
        for at in range(0, len(placed), step):
            writes: dict[str, Put | None] = {}
            for index, replicas in enumerate(placed[at : at + step], first + at):
                value = first_state(metadata.image, replicas, is_standalone=metadata.is_standalone)
                writes[keys.partition(topic_id, index)] = Put(keys.encode(value))
            if not (await metadata.txn(expect, writes)).committed:
                return False
        return True

    async def _forget_abandoned(self) -> None:
        """Delete what creations have left that failed, or ended without a known outcome."""
        try:
            for topic_id, count in list(self._abandoned.items()):
                await self._forget(topic_id, count)
                self._abandoned.pop(topic_id, None)
        except MetadataStoreError as error:
            logger.warning(
                "what a creation has left could not be deleted, and the next tries again: %s", error
            )

    async def _forget(self, topic_id: bytes, count: int) -> None:
        """Delete what a creation has left, unless the topic is there."""
        if not self._metadata.is_standalone:
            # ORDER: the claim goes first; without it, no transaction of the creation can be applied any more.
            await self._metadata.write({keys.creating(topic_id): None})
        if topic_id not in self._metadata.image.topics_by_id:
            await self.delete_partitions(topic_id, range(count))

    def _has_metric_name(self, name: str) -> bool:
        return not self._metadata.is_standalone and ("." in name or "_" in name)


async def finish_deletion(metadata: ClusterMetadata, topic_id: bytes, node_id: int) -> None:
    """Record that this broker has no files of a deleted topic any more; the last broker ends the deletion.

    In a cluster it returns only once that is recorded, however long the store is unavailable.
    """
    while True:
        try:
            if await _has_finished_deletion(metadata, topic_id, node_id):
                return
        except (StoreUnavailable, OutcomeUncertain):
            if metadata.is_standalone:
                raise
            await asyncio.sleep(_DELETION_RETRY_S)


async def _has_finished_deletion(metadata: ClusterMetadata, topic_id: bytes, node_id: int) -> bool:
    """Try once; return False if another broker was faster."""
    found = metadata.image.deleting.get(topic_id)
    left = [] if found is None else [node for node in found.brokers if node != node_id]
    if found is None or (left and left == found.brokers):
        return True
    value = keys.DeletingValue(name=found.name, brokers=left)
    key = keys.deleting(topic_id)
    outcome = await metadata.txn({key: found.revision}, {key: Put(keys.encode(value)) if left else None})
    return outcome.committed


def _refused(name: str, found: Mapping[str, StoreItem | None]) -> RequestError:
    """Return why the key of a new topic was not written."""
    if found.get(keys.topic(name)) is not None:
        return RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} already exists.")
    other = found.get(keys.metric_name(name))
    if other is not None:
        return collision_error(name, keys.decode_metric_name(other.value).name)
    return _fenced(name)


def _fenced(name: str) -> RequestError:
    return RequestError(
        ErrorCode.REQUEST_TIMED_OUT, f"The creation of topic {name!r} was given up: the broker was fenced."
    )


def _changed(name: str) -> RequestError:
    return RequestError(
        ErrorCode.REASSIGNMENT_IN_PROGRESS, f"Topic {name!r} was changed or deleted meanwhile."
    )
