"""The image of the cluster: what the metadata store says, ready to be asked. Pure.

Built by applying changes in their order; nothing else changes it. Reading it needs no lock and no wait.
A topic is visible once its key and all of its partitions are there, and a partition added to it once the topic's key
counts it: brokers may see the keys of one creation in several revisions. A change of one partition costs the same,
however many its topic has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from flintmq.metadata import keys
from flintmq.metadata.quota_entity import QuotaEntity
from flintmq.metadata.store import StoreItem
from flintmq.protocol.scram import ScramCredential
from flintmq.records.uuids import decode_uuid

STANDALONE_EPOCH: Final = 0
"""The broker epoch of a broker that is not part of a cluster."""


@dataclass(slots=True)
class PartitionImage:
    value: keys.PartitionValue
    revision: int
    """Of its key: what a change of the partition expects."""

    @property
    def leader(self) -> int:
        return self.value.leader

    @property
    def epoch(self) -> int:
        return self.value.epoch

    @property
    def replicas(self) -> list[int]:
        return self.value.replicas

    @property
    def isr(self) -> list[int]:
        return self.value.isr

    def is_led_by(self, node_id: int, broker_epoch: int) -> bool:
        """Whether this run of the broker leads: one that has registered again must be elected again."""
        value = self.value
        if value.leader != node_id:
            return False
        if not value.isr_epochs:
            # A standalone broker has no registration; in a cluster, the controller elects with epochs.
            return broker_epoch == STANDALONE_EPOCH
        return node_id in value.isr and value.isr_epochs[value.isr.index(node_id)] == broker_epoch


@dataclass(slots=True)
class BrokerImage:
    id: int
    epoch: int
    """The revision of its key: another one for each registration."""
    value: keys.BrokerValue
    is_draining: bool = False
    """A controlled shutdown is under way: it takes no leadership and enters no ISR."""

    @property
    def clean_since(self) -> int:
        """The broker epoch since which nothing that its logs held was lost."""
        return self.value.clean_since or self.epoch


class ControllerImage(NamedTuple):
    node: int
    epoch: int
    revision: int


class CreationImage(NamedTuple):
    """The creation or growth of a topic that is under way."""

    value: keys.CreatingValue
    revision: int


class DeletionImage(NamedTuple):
    """A topic that is gone for clients, and whose files may not be gone yet."""

    name: str
    brokers: list[int]
    revision: int


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
    """Topics that are new or have grown, or of which a partition changed."""
    partitions_changed: list[tuple[TopicImage, int]] = field(default_factory=list)
    """Partitions that are new or changed, by the index that they have in their topics."""
    topics_deleted: list[TopicImage] = field(default_factory=list)
    brokers: list[int] = field(default_factory=list)
    """Brokers that registered, changed their registration or lost it."""
    controller: bool = False
    topic_configs: list[str] = field(default_factory=list)
    broker_configs: bool = False
    scram: bool = False
    """SCRAM credentials."""
    quotas: bool = False
    acls_added: list[keys.AclValue] = field(default_factory=list)
    acls_removed: list[keys.AclValue] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    """Ids of delegation tokens that were added, changed or removed."""
    unclaimed: bool = False
    """Whether a partition without a topic came or went, or a creation or deletion began or ended."""


class TokenImage(NamedTuple):
    value: keys.TokenValue
    revision: int


class ClusterImage:
    def __init__(self) -> None:
        self.revision = 0
        self.cluster_id = ""
        self.brokers: dict[int, BrokerImage] = {}
        """Those that are registered; none in a store of one standalone broker."""
        self._draining: dict[int, str] = {}
        """Incarnations of brokers that shut down."""
        self.controller: ControllerImage | None = None
        self.controller_epoch = 0
        """Of the controller, or of the last one."""
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.creating: dict[bytes, CreationImage] = {}
        self.deleting: dict[bytes, DeletionImage] = {}
        self.acls: dict[str, keys.AclValue] = {}
        """By key in the store."""
        self.config_revisions: dict[str, int] = {}
        self.scram: dict[str, dict[str, ScramCredential]] = {}
        """By mechanism and user."""
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.quota_revisions: dict[QuotaEntity, int] = {}
        self.sasl_secret = b""
        self.features: dict[str, int] = {}
        """Finalized levels of features that are not the highest."""
        self.tokens: dict[str, TokenImage] = {}
        """Delegation tokens by id."""
        self._hidden: dict[bytes, dict[int, PartitionImage]] = {}
        """Partitions that no visible topic counts, by topic id and index."""
        self._incomplete: dict[bytes, tuple[str, int, int]] = {}
        """Name, partition count and revision of topics some of whose partitions are not there."""
        self._collisions: dict[str, str] = {}

    def apply(self, revision: int, items: Mapping[str, StoreItem | None]) -> ImageDelta:
        """Take in all changes of one revision. Partitions come first: a topic's key completes it."""
        delta = ImageDelta()
        changed: dict[bytes, TopicImage] = {}
        for key, item in items.items():
            if key.startswith(keys.PARTITIONS):
                self._apply_partition(key, item, delta, changed)
        for key, item in items.items():
            if not key.startswith(keys.PARTITIONS):
                self._apply_other(key, item, delta, changed)
        delta.topics_changed.extend(changed.values())
        self.revision = revision
        return delta

    def _apply_other(
        self, key: str, item: StoreItem | None, delta: ImageDelta, changed: dict[bytes, TopicImage]
    ) -> None:
        if key.startswith(keys.TOPICS):
            self._apply_topic(key[len(keys.TOPICS) :], item, delta, changed)
        elif key.startswith(keys.TOPIC_CONFIGS):
            name = key[len(keys.TOPIC_CONFIGS) :]
            self._apply_config(self.topic_configs, name, key, item)
            delta.topic_configs.append(name)
        elif key.startswith(keys.BROKER_CONFIGS):
            self._apply_config(self.broker_configs, key[len(keys.BROKER_CONFIGS) :], key, item)
            delta.broker_configs = True
        elif key.startswith(keys.CREATING):
            self._apply_creating(key, item)
            delta.unclaimed = True
        elif key.startswith(keys.DELETING):
            self._apply_deleting(key, item)
            delta.unclaimed = True
        elif key.startswith(keys.BROKERS):
            self._apply_broker(int(key[len(keys.BROKERS) :]), item, delta)
        elif key.startswith(keys.DRAINING):
            self._apply_draining(int(key[len(keys.DRAINING) :]), item, delta)
        elif key == keys.CONTROLLER:
            self._apply_controller(item)
            delta.controller = True
        elif key == keys.CONTROLLER_EPOCH and item is not None:
            self.controller_epoch = keys.decode_controller_epoch(item.value).epoch
        elif key.startswith(keys.SCRAM):
            self._apply_scram(key, item)
            delta.scram = True
        elif key.startswith(keys.QUOTAS):
            self._apply_quotas(keys.quota_entity(key), item)
            delta.quotas = True
        elif key == keys.SASL_SECRET and item is not None:
            self.sasl_secret = keys.decode_sasl_secret(item.value).secret
        elif key == keys.FEATURES:
            self.features = {} if item is None else keys.decode_features(item.value)
        elif key.startswith(keys.ACLS):
            self._apply_acl(key, item, delta)
        elif key.startswith(keys.TOKENS):
            self._apply_token(key[len(keys.TOKENS) :], item, delta)
        elif key == keys.CLUSTER and item is not None:
            self.cluster_id = keys.decode_cluster(item.value).id

    def become(self, other: ClusterImage) -> None:
        """Take over everything at once, for those who hold this image."""
        self.__dict__.update(other.__dict__)

    def offline_replicas(self, state: PartitionImage) -> list[int]:
        """Return the replicas whose brokers are not registered now."""
        if not self.brokers:
            return []
        return [node for node in state.replicas if node not in self.brokers]

    def available_leader(self, state: PartitionImage) -> int:
        """Return the leader that clients can reach; -1 if there is none."""
        return state.leader if not self.brokers or state.leader in self.brokers else -1

    def controller_or(self, node_id: int) -> int:
        """Return the controller of the cluster; `node_id` on a standalone broker, -1 while there is none."""
        if self.controller is not None:
            return self.controller.node
        return -1 if self.brokers else node_id

    def has_partition(self, topic: str, index: int) -> bool:
        known = self.topics.get(topic)
        return known is not None and 0 <= index < len(known.partitions)

    def delta_from(self, old: ClusterImage) -> ImageDelta:
        """Return what changed since an older image, of which the history is not known."""
        changed: dict[bytes, TopicImage] = {}
        partitions: list[tuple[TopicImage, int]] = []
        for topic in self.topics.values():
            before = old.topics_by_id.get(topic.id)
            known = [] if before is None else before.partitions
            if before is None:
                changed[topic.id] = topic
            for index, state in enumerate(topic.partitions):
                if index >= len(known) or known[index].revision != state.revision:
                    partitions.append((topic, index))
                    changed[topic.id] = topic
        nodes = {*self.brokers, *old.brokers}
        return ImageDelta(
            topics_changed=list(changed.values()),
            partitions_changed=partitions,
            # The files of a topic must not be deleted because a key of a partition is missing.
            topics_deleted=[
                topic
                for topic in old.topics.values()
                if topic.id not in self.topics_by_id and topic.id not in self._incomplete
            ],
            brokers=sorted(node for node in nodes if self.brokers.get(node) != old.brokers.get(node)),
            controller=self.controller != old.controller,
            topic_configs=sorted({*self.topic_configs, *old.topic_configs}),
            broker_configs=True,
            scram=True,
            quotas=True,
            acls_added=list(self.acls.values()),
            acls_removed=list(old.acls.values()),
            tokens=sorted({*self.tokens, *old.tokens}),
            unclaimed=True,
        )

    def collision(self, name: str) -> str | None:
        """An existing topic whose metric names would be the same, `.` and `_` being one there."""
        return self._collisions.get(name.replace(".", "_"))

    def unclaimed(self) -> list[tuple[bytes, int]]:
        """Partitions without a topic: what a creation or deletion that was cut short has left.

        What the growth of a topic has left is not among them: it is overwritten by the next growth.
        """
        return [
            (topic_id, index)
            for topic_id, partitions in self._hidden.items()
            if topic_id not in self.topics_by_id
            and topic_id not in self.creating
            and topic_id not in self._incomplete
            for index in partitions
        ]

    def _apply_partition(
        self, key: str, item: StoreItem | None, delta: ImageDelta, changed: dict[bytes, TopicImage]
    ) -> None:
        text, _, number = key[len(keys.PARTITIONS) :].partition("/")
        topic_id, index = decode_uuid(text) or b"", int(number)
        topic = self.topics_by_id.get(topic_id)
        if topic is not None and index < len(topic.partitions):
            # A partition does not vanish before its topic: a deletion here would be a mistake elsewhere,
            # and must not cost the replicas their files.
            if item is not None:
                topic.partitions[index] = PartitionImage(keys.decode_partition(item.value), item.revision)
                delta.partitions_changed.append((topic, index))
                changed[topic_id] = topic
            return
        hidden = self._hidden.setdefault(topic_id, {})
        if item is not None:
            hidden[index] = PartitionImage(keys.decode_partition(item.value), item.revision)
        else:
            hidden.pop(index, None)
            if not hidden:
                del self._hidden[topic_id]
        delta.unclaimed = True
        if topic_id in self._incomplete:
            self._complete(topic_id, delta, changed)

    def _apply_topic(
        self, name: str, item: StoreItem | None, delta: ImageDelta, changed: dict[bytes, TopicImage]
    ) -> None:
        value = None if item is None else keys.decode_topic(item.value)
        topic_id = b"" if value is None else decode_uuid(value.id) or b""
        old = self.topics.get(name)
        if old is not None and old.id != topic_id:
            self._forget(old, delta)
            changed.pop(old.id, None)
        # A name that is deleted or taken by another topic has no incomplete topic either.
        for known, (other, _, _) in list(self._incomplete.items()):
            if other == name and known != topic_id:
                del self._incomplete[known]
                delta.unclaimed = True
        if item is not None and value is not None:
            self._incomplete[topic_id] = (name, value.partitions, item.revision)
            self._complete(topic_id, delta, changed)

    def _complete(self, topic_id: bytes, delta: ImageDelta, changed: dict[bytes, TopicImage]) -> None:
        """Show a topic, or what it has grown by, if all of it is there."""
        name, count, revision = self._incomplete[topic_id]
        topic = self.topics_by_id.get(topic_id)
        if topic is not None:
            # A change of the topic compares with its key, whether its partitions are all there or not.
            topic.revision = revision
        hidden = self._hidden.get(topic_id, {})
        have = 0 if topic is None else len(topic.partitions)
        if len(hidden) < count - have or not all(index in hidden for index in range(have, count)):
            return
        del self._incomplete[topic_id]
        if topic is None:
            topic = self.topics[name] = self.topics_by_id[topic_id] = TopicImage(name, topic_id, revision)
            self._collisions[name.replace(".", "_")] = name
        for index in range(have, count):
            topic.partitions.append(hidden.pop(index))
            delta.partitions_changed.append((topic, index))
        if not hidden:
            self._hidden.pop(topic_id, None)
        changed[topic_id] = topic

    def _forget(self, topic: TopicImage, delta: ImageDelta) -> None:
        del self.topics[topic.name]
        del self.topics_by_id[topic.id]
        merged = topic.name.replace(".", "_")
        if self._collisions.get(merged) == topic.name:
            del self._collisions[merged]
        # The keys of its partitions stay until they are deleted on their own.
        hidden = self._hidden.setdefault(topic.id, {})
        hidden.update(enumerate(topic.partitions))
        if not hidden:
            del self._hidden[topic.id]
        self._incomplete.pop(topic.id, None)
        delta.unclaimed = True
        delta.partitions_changed = [entry for entry in delta.partitions_changed if entry[0] is not topic]
        delta.topics_deleted.append(topic)

    def _apply_broker(self, node_id: int, item: StoreItem | None, delta: ImageDelta) -> None:
        if item is None:
            self.brokers.pop(node_id, None)
        else:
            value = keys.decode_broker(item.value)
            is_draining = self._draining.get(node_id) == value.incarnation
            self.brokers[node_id] = BrokerImage(node_id, item.revision, value, is_draining)
        if node_id not in delta.brokers:
            delta.brokers.append(node_id)

    def _apply_draining(self, node_id: int, item: StoreItem | None, delta: ImageDelta) -> None:
        if item is None:
            self._draining.pop(node_id, None)
        else:
            self._draining[node_id] = keys.decode_draining(item.value).incarnation
        found = self.brokers.get(node_id)
        if found is not None:
            found.is_draining = self._draining.get(node_id) == found.value.incarnation
        if node_id not in delta.brokers:
            delta.brokers.append(node_id)

    def _apply_controller(self, item: StoreItem | None) -> None:
        if item is None:
            self.controller = None
        else:
            value = keys.decode_controller(item.value)
            self.controller = ControllerImage(value.node, value.epoch, item.revision)

    def _apply_config(
        self, configs: dict[str, dict[str, str]], name: str, key: str, item: StoreItem | None
    ) -> None:
        if item is None:
            configs.pop(name, None)
            self.config_revisions.pop(key, None)
        else:
            configs[name] = keys.decode_config(item.value)
            self.config_revisions[key] = item.revision

    def _apply_creating(self, key: str, item: StoreItem | None) -> None:
        topic_id = decode_uuid(key[len(keys.CREATING) :]) or b""
        if item is None:
            self.creating.pop(topic_id, None)
        else:
            self.creating[topic_id] = CreationImage(keys.decode_creating(item.value), item.revision)

    def _apply_deleting(self, key: str, item: StoreItem | None) -> None:
        topic_id = decode_uuid(key[len(keys.DELETING) :]) or b""
        if item is None:
            self.deleting.pop(topic_id, None)
        else:
            value = keys.decode_deleting(item.value)
            self.deleting[topic_id] = DeletionImage(value.name, value.brokers, item.revision)

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
