"""A topic that is made has its logs, or is not made.

Kept apart from the transaction that makes it known: whether the disk has room for its logs shows only afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.cluster.image import TopicImage
from flintmq.cluster.topics import NewTopic
from flintmq.errors import StorageError

if TYPE_CHECKING:
    from flintmq.broker.services import Services


async def create_topic(new: NewTopic, services: Services) -> TopicImage:
    """StorageError, and no topic, if this broker could not make all of its logs."""
    topic = await services.topics.create(new)
    current = services.metadata.image.topics_by_id.get(topic.id)
    if current is None:
        return topic  # deleted again by somebody else
    if all(
        services.partitions.get(topic.id, index) is not None
        for index, state in enumerate(current.partitions)
        if services.node_id in state.replicas
    ):
        return topic
    await services.topics.delete(current)
    raise StorageError("The disk has no room for the logs of the topic, or fails; the topic is not made.")
