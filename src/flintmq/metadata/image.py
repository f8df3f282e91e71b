"""The image of the cluster: what the metadata store says, ready to be asked. Pure.

Built by applying changes in their order; nothing else changes it. Reading it needs no lock and no wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from flintmq.metadata import keys
from flintmq.metadata.quota_entity import QuotaEntity
from flintmq.metadata.store import StoreItem
from flintmq.protocol.scram import ScramCredential
from flintmq.records.uuids import decode_uuid


@dataclass(slots=True)
class PartitionImage:
    leader: int
    epoch: int
    replicas: list[int]
    isr: list[int]


def is_internal(topic: str) -> bool:
    """Whether the topic is where a coordinator keeps what it knows: clients may read it, and only brokers write."""
    return topic in ("__consumer_offsets", "__transaction_state", "__share_group_state")


@dataclass(slots=True)
class TopicImage:
    name: str
    id: bytes
    revision: int
    partitions: list[PartitionImage] = field(default_factory=list)

    @property
    def is_internal(self) -> bool:
        return is_internal(self.name)


@dataclass(slots=True)
class ImageDelta:
    """What one revision changed, for those who keep something in step with the image."""

    topics_changed: list[TopicImage] = field(default_factory=list)
    topics_deleted: list[TopicImage] = field(default_factory=list)
    topic_configs: list[str] = field(default_factory=list)
    broker_configs: bool = False
    scram: bool = False
    """SCRAM credentials."""
    quotas: bool = False
    acls_added: list[keys.AclValue] = field(default_factory=list)
    acls_removed: list[keys.AclValue] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    """Ids of delegation tokens that were added, changed or removed."""


class TokenImage(NamedTuple):
    value: keys.TokenValue
    revision: int


class ClusterImage:
    def __init__(self) -> None:
        self.revision = 0
        self.cluster_id = ""
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.deleting: dict[bytes, str] = {}
        self.acls: dict[str, keys.AclValue] = {}
        """By key in the store."""
        self.config_revisions: dict[str, int] = {}
        self.scram: dict[str, dict[str, ScramCredential]] = {}
        """By mechanism and user."""
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.quota_revisions: dict[QuotaEntity, int] = {}
        self.sasl_secret = b""
        self.tokens: dict[str, TokenImage] = {}
        """Delegation tokens by id."""
        self._partitions: dict[bytes, dict[int, PartitionImage]] = {}
        self._collisions: dict[str, str] = {}

    def apply(self, revision: int, items: Mapping[str, StoreItem | None]) -> ImageDelta:
        """Take in all changes of one revision. Partitions come first: a topic's key completes it."""
        delta = ImageDelta()
        changed: dict[bytes, None] = {}
        for key, item in items.items():
            if key.startswith(keys.PARTITIONS):
                changed[self._apply_partition(key, item)] = None
        for key, item in items.items():
            if key.startswith(keys.TOPICS):
                self._apply_topic(key[len(keys.TOPICS) :], item, delta, changed)
            elif key.startswith(keys.TOPIC_CONFIGS):
                name = key[len(keys.TOPIC_CONFIGS) :]
                self._apply_config(self.topic_configs, name, key, item)
                delta.topic_configs.append(name)
            elif key.startswith(keys.BROKER_CONFIGS):
                self._apply_config(self.broker_configs, key[len(keys.BROKER_CONFIGS) :], key, item)
                delta.broker_configs = True
            elif key.startswith(keys.DELETING):
                self._apply_deleting(key, item)
            elif key.startswith(keys.SCRAM):
                self._apply_scram(key, item)
                delta.scram = True
            elif key.startswith(keys.QUOTAS):
                self._apply_quotas(keys.quota_entity(key), item)
                delta.quotas = True
            elif key == keys.SASL_SECRET and item is not None:
                self.sasl_secret = keys.decode_sasl_secret(item.value).secret
            elif key.startswith(keys.ACLS):
                self._apply_acl(key, item, delta)
            elif key.startswith(keys.TOKENS):
                self._apply_token(key[len(keys.TOKENS) :], item, delta)
            elif key == keys.CLUSTER and item is not None:
                self.cluster_id = keys.decode_cluster(item.value).id
        for topic_id in changed:
            topic = self.topics_by_id.get(topic_id)
            if topic is not None and topic not in delta.topics_changed:
                self._fill(topic, len(topic.partitions))
                delta.topics_changed.append(topic)
        self.revision = revision
        return delta

    def become(self, other: ClusterImage) -> None:
        """Take over everything at once, for those who hold this image."""
        self.__dict__.update(other.__dict__)

    def collision(self, name: str) -> str | None:
        """An existing topic whose metric names would be the same, `.` and `_` being one there."""
        return self._collisions.get(name.replace(".", "_"))

    def unclaimed(self) -> list[tuple[bytes, int]]:
        """Partitions without a topic: what a creation or deletion that was cut short has left."""
        return [
            (topic_id, index)
            for topic_id, partitions in self._partitions.items()
            if topic_id not in self.topics_by_id
            for index in partitions
        ]

    def _apply_partition(self, key: str, item: StoreItem | None) -> bytes:
        text, _, index = key[len(keys.PARTITIONS) :].partition("/")
        topic_id = decode_uuid(text) or b""
        partitions = self._partitions.setdefault(topic_id, {})
        if item is None:
            partitions.pop(int(index), None)
            if not partitions:
                del self._partitions[topic_id]
        else:
            value = keys.decode_partition(item.value)
            partitions[int(index)] = PartitionImage(value.leader, value.epoch, value.replicas, value.isr)
        return topic_id

    def _apply_topic(
        self, name: str, item: StoreItem | None, delta: ImageDelta, changed: dict[bytes, None]
    ) -> None:
        old = self.topics.get(name)
        if item is None:
            if old is not None:
                self._forget(old, delta)
            return
        value = keys.decode_topic(item.value)
        topic_id = decode_uuid(value.id) or b""
        if old is not None and old.id != topic_id:
            self._forget(old, delta)
            old = None
        topic = old or TopicImage(name, topic_id, item.revision)
        topic.revision = item.revision
        self._fill(topic, value.partitions)
        self.topics[name] = topic
        self.topics_by_id[topic_id] = topic
        self._collisions[name.replace(".", "_")] = name
        delta.topics_changed.append(topic)
        changed.pop(topic_id, None)

    def _fill(self, topic: TopicImage, count: int) -> None:
        partitions = self._partitions.get(topic.id, {})
        topic.partitions = [partitions[index] for index in range(count)]

    def _forget(self, topic: TopicImage, delta: ImageDelta) -> None:
        del self.topics[topic.name]
        del self.topics_by_id[topic.id]
        merged = topic.name.replace(".", "_")
        if self._collisions.get(merged) == topic.name:
            del self._collisions[merged]
        delta.topics_deleted.append(topic)

    def _apply_config(
        self, configs: dict[str, dict[str, str]], name: str, key: str, item: StoreItem | None
    ) -> None:
        if item is None:
            configs.pop(name, None)
            self.config_revisions.pop(key, None)
        else:
            configs[name] = keys.decode_config(item.value)
            self.config_revisions[key] = item.revision

    def _apply_deleting(self, key: str, item: StoreItem | None) -> None:
        topic_id = decode_uuid(key[len(keys.DELETING) :]) or b""
        if item is None:
            self.deleting.pop(topic_id, None)
        else:
            self.deleting[topic_id] = keys.decode_deleting(item.value).name

    def _apply_scram(self, key: str, item: StoreItem | None) -> None:
        mechanism, _, user = key[len(keys.SCRAM) :].partition("/")
        if item is None:
            self.scram.get(mechanism, {}).pop(user, None)
            return
        value = keys.decode_scram(item.value)
        self.scram.setdefault(mechanism, {})[user] = ScramCredential(
            value.salt, value.stored_key, value.server_key, value.iterations
        )

    def _apply_quotas(self, entity: QuotaEntity, item: StoreItem | None) -> None:
        if item is None:
            self.quotas.pop(entity, None)
            self.quota_revisions.pop(entity, None)
        else:
            self.quotas[entity] = keys.decode_quotas(item.value)
            self.quota_revisions[entity] = item.revision

    def _apply_acl(self, key: str, item: StoreItem | None, delta: ImageDelta) -> None:
        old = self.acls.pop(key, None)
        if old is not None:
            delta.acls_removed.append(old)
        if item is not None:
            value = self.acls[key] = keys.decode_acl(item.value)
            delta.acls_added.append(value)

    def _apply_token(self, token_id: str, item: StoreItem | None, delta: ImageDelta) -> None:
        if item is None:
            self.tokens.pop(token_id, None)
        else:
            self.tokens[token_id] = TokenImage(keys.decode_token(item.value), item.revision)
        delta.tokens.append(token_id)
