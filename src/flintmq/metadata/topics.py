"""Creating, growing and deleting topics: what is allowed (pure), and the transactions that do it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from flintmq.effects import Random
from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.configs import Configs
from flintmq.metadata.image import ClusterImage, ImageDelta, TopicImage
from flintmq.metadata.topic_transactions import TopicTransactions, collision_error
from flintmq.records.uuids import encode_uuid
from flintmq.settings import parse_topic_config

NAME_SIZE_MAX = 249
PARTITIONS_MAX = 100_000
REQUEST_PARTITIONS_MAX = 10_000
_DELETED_MAX = 1_000
METADATA_TOPIC = "__cluster_metadata"
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


def check_name(name: str) -> None:
    """Kafka's rules."""
    if not name:
        why = "the name is empty"
    elif name in (".", ".."):
        why = "it is '.' or '..'"
    elif len(name) > NAME_SIZE_MAX:
        why = f"it is longer than {NAME_SIZE_MAX} characters"
    elif not _NAME.fullmatch(name):
        why = "only letters, digits, '.', '_' and '-' are allowed"
    else:
        return
    raise RequestError(
        ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name {name[:NAME_SIZE_MAX]!r} is invalid: {why}."
    )


def check_collision(image: ClusterImage, name: str) -> None:
    other = image.collision(name)
    if other is not None:
        refuse_collision(name, other)


def refuse_collision(name: str, other: str) -> None:
    if other != name and other.replace(".", "_") == name.replace(".", "_"):
        raise collision_error(name, other)


def check_total(counts: Iterable[int], *, default: int) -> None:
    """Kafka's limit on the partitions of all topics of one request; a count of -1 is the default."""
    if sum(default if count == -1 else max(0, count) for count in counts) > REQUEST_PARTITIONS_MAX:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION, f"One request creates up to {REQUEST_PARTITIONS_MAX} partitions."
        )


class Placement(Protocol):
    """Chooses the brokers of new partitions."""

    def brokers(self) -> Sequence[int]:
        """Return the brokers that may hold replicas."""
        ...

    def place(self, topic: str, *, first: int, count: int, factor: int) -> list[list[int]]:
        """Return the replicas of partitions from `first` on, the preferred leader first.

        RequestError if there are not enough brokers.
        """
        ...


class StandalonePlacement:
    """The only broker holds everything."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id

    def brokers(self) -> Sequence[int]:
        return [self._node_id]

    def place(self, topic: str, *, first: int, count: int, factor: int) -> list[list[int]]:
        check_factor(factor, broker_count=1)
        return [[self._node_id] for _ in range(count)]


def check_factor(factor: int, *, broker_count: int) -> None:
    if not 0 < factor <= broker_count:
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor {factor} must be between 1 and the number of brokers, {broker_count}.",
        )


def place_replicas(new: NewTopic, placement: Placement, *, count: int, factor: int) -> list[list[int]]:
    """Return which brokers hold each partition: as asked for, else as the placement says."""
    if new.assignments:
        if new.partition_count != -1 or new.replication_factor != -1:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                "Give replica assignments, or a partition count and replication factor, not both.",
            )
        return check_assignments(new.assignments, first=0, brokers=placement.brokers())
    if factor > 0 and not 0 < count <= PARTITIONS_MAX:
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS,
            f"The partition count must be between 1 and {PARTITIONS_MAX}, not {count}.",
        )
    return placement.place(new.name, first=0, count=count, factor=factor)


def check_assignments(
    assignments: Mapping[int, Sequence[int]], *, first: int, brokers: Sequence[int]
) -> list[list[int]]:
    placed: list[list[int]] = []
    for index in range(first, first + len(assignments)):
        replicas = list(assignments.get(index, ()))
        if (
            not replicas
            or len(set(replicas)) != len(replicas)
            or any(broker not in brokers for broker in replicas)
            or (placed and len(placed[0]) != len(replicas))
        ):
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Partition {index} needs distinct, known brokers and as many as the others; it has {replicas}.",
            )
        placed.append(replicas)
    return placed


class Topics:
    def __init__(
        self,
        metadata: ClusterMetadata,
        configs: Configs,
        random: Random,
        node_id: int,
        *,
        placement: Placement | None = None,
        broker_epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        """`placement` and `broker_epoch`, the epoch of this broker's registration, are those of a cluster."""
        self._metadata = metadata
        self._configs = configs
        self._random = random
        self._placement: Placement = placement or StandalonePlacement(node_id)
        self._transactions = TopicTransactions(metadata, node_id, broker_epoch)
        self._deleted: dict[str, None] = {}
        """The last ones that nobody has asked for since."""
        # Names whose creation is under way: two that collide must not pass the check side by side.
        self._creating: list[str] = []
        metadata.subscribe(self._follow)

    @property
    def image(self) -> ClusterImage:
        return self._metadata.image

    def plan(self, new: NewTopic) -> list[list[int]]:
        """Everything that can be wrong with a creation, found before anything is written."""
        check_name(new.name)
        if new.name == METADATA_TOPIC:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} is not a topic that can be created."
            )
        if new.name in self.image.topics:
            raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {new.name!r} already exists.")
        check_collision(self.image, new.name)
        broker = self._configs.broker
        count = broker.num_partitions if new.partition_count == -1 else new.partition_count
        factor = broker.default_replication_factor if new.replication_factor == -1 else new.replication_factor
        if new.configs:
            parse_topic_config(new.configs, broker)
        return place_replicas(new, self._placement, count=count, factor=factor)

    async def create(self, new: NewTopic) -> TopicImage:
        placed = self.plan(new)
        for other in self._creating:
            refuse_collision(new.name, other)
        self._creating.append(new.name)
        try:
            return await self._create(new, placed)
        finally:
            self._creating.remove(new.name)

    async def _create(self, new: NewTopic, placed: Sequence[list[int]]) -> TopicImage:
        topic_id = self._new_id()
        revision = await self._transactions.create(new.name, topic_id, placed, new.configs)
        # Whoever deleted it again before this line ran did not keep it from having been created.
        return self.image.topics_by_id.get(topic_id) or TopicImage(new.name, topic_id, revision)

    async def add_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> None:
        topic = self.find(name)
        have = len(topic.partitions)
        if topic.is_internal:
            raise RequestError(
                ErrorCode.INVALID_PARTITIONS,
                f"With more partitions, coordinators would look for what {name} holds in the wrong ones.",
            )
        if count <= have:
            problem = "already has" if count == have else f"has {have} partitions, which is more than"
            raise RequestError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic {name!r} {problem} {count}; partitions can only be added.",
            )
        if count > PARTITIONS_MAX:
            raise RequestError(ErrorCode.INVALID_PARTITIONS, f"More than {PARTITIONS_MAX} partitions.")
        if assignments is not None:
            if len(assignments) != count - have:
                raise RequestError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{count - have} partitions are new, but {len(assignments)} are assigned.",
                )
            by_index = {have + at: replicas for at, replicas in enumerate(assignments)}
            placed = check_assignments(by_index, first=have, brokers=self._placement.brokers())
        else:
            factor = len(topic.partitions[0].replicas)
            placed = self._placement.place(name, first=have, count=count - have, factor=factor)
        if validate_only:
            return
        await self._transactions.grow(topic, placed)

    async def delete(self, topic: TopicImage) -> None:
        """Gone for clients when this returns; the files follow in the background."""
        if not self._configs.broker.delete_topic_enable:
            raise RequestError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false.")
        await self._transactions.delete(topic)

    def _follow(self, delta: ImageDelta) -> None:
        """Note deleted topics, whichever broker deleted them."""
        for topic in delta.topics_deleted:
            self._deleted.pop(topic.name, None)
            self._deleted[topic.name] = None
            if len(self._deleted) > _DELETED_MAX:
                del self._deleted[next(iter(self._deleted))]

    def is_missed(self, name: str) -> bool:
        """True once for a topic that was deleted: who asks for it first is to learn that, not to bring it back."""
        return self._deleted.pop(name, self) is None

    def check_reassignment(
        self, name: str, index: int, replicas: Sequence[int] | None, *, factor_may_change: bool
    ) -> None:
        """RequestError unless the partition may be on `replicas`, where it is then already; None cancels."""
        topic = self.find(name)
        if not 0 <= index < len(topic.partitions):
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}-{index}.")
        if replicas is None:
            raise RequestError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"No reassignment of {name}-{index} is in progress."
            )
        check_assignments({index: replicas}, first=index, brokers=self._placement.brokers())
        factor = len(topic.partitions[index].replicas)
        if len(replicas) != factor and not factor_may_change:
            raise RequestError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor would change from {factor} to {len(replicas)}.",
            )

    def find(self, name: str) -> TopicImage:
        topic = self.image.topics.get(name)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name!r} does not exist.")
        return topic

    def _new_id(self) -> bytes:
        """A random UUID of version 4; as Kafka, none whose text begins with a dash."""
        while True:
            raw = bytearray(self._random.bytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            if not encode_uuid(bytes(raw)).startswith("-"):
                return bytes(raw)
