"""The keys and values of the metadata store. Pure.

/cluster                     {"id": …}
/topics/{name}               {"id": …, "partitions": n}       written last: the commit point of a creation
/p/{topic-id}/{n}            {"leader": …, "epoch": …, "replicas": […], "isr": […], …}
/brokers/{id}                {"incarnation": …, "listeners": […], …}      leased; only in a cluster
/draining/{id}               {"incarnation": …}                           leased; a controlled shutdown is under way
/controller                  {"node": …, "epoch": …}                      leased; only in a cluster
/controller-epoch            {"epoch": …}                     of the last controller; only in a cluster
/config/topic/{name}         {"retention.ms": "…"}
/config/broker/{id}          the same; the empty id is the default of all brokers
/creating/{topic-id}         {"name": …, "node": …}           while a broker of a cluster creates or grows a topic
/deleting/{topic-id}         {"name": …, …}                   until the files are gone
/metric-name/{name}          {"name": …}                      a cluster's topic whose name has dots or underscores
/producer-ids                {"next": n, …}                   ids below it have been handed out
/scram/{mechanism}/{user}    {"salt": …, "stored_key": …, "server_key": …, "iterations": n}
/quota/{entity}              {"producer_byte_rate": n, …}     by entity, such as user=alice&client-id
/features                    {"transaction.version": n}       levels that are not the highest
/sasl-secret                 {"secret": …}                    makes the salts of users that do not exist
/acl/{uuid}                  an ACL; the uuid is derived from it, so that no ACL is there twice
/token/{id}                  a delegation token, without its HMAC
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from flintmq.metadata.quota_entity import QuotaEntity, entity_key, parse_entity_key
from flintmq.records.uuids import encode_uuid

CLUSTER = "/cluster"
PRODUCER_IDS = "/producer-ids"
TOPICS = "/topics/"
PARTITIONS = "/p/"
TOPIC_CONFIGS = "/config/topic/"
BROKER_CONFIGS = "/config/broker/"
CREATING = "/creating/"
DELETING = "/deleting/"
METRIC_NAMES = "/metric-name/"
SCRAM = "/scram/"
QUOTAS = "/quota/"
FEATURES = "/features"
SASL_SECRET = "/sasl-secret"
ACLS = "/acl/"
TOKENS = "/token/"
BROKERS = "/brokers/"
DRAINING = "/draining/"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller-epoch"


class ClusterValue(msgspec.Struct, frozen=True):
    id: str


class TopicValue(msgspec.Struct, frozen=True):
    id: str
    partitions: int


class PartitionValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a partition. A broker epoch is the revision of the broker's key in the store.

    A member of the ISR or the ELR is recorded with the broker epoch under which it joined: what it held then, it
    still holds as long as its registration says so (`BrokerValue.clean_since`). A standalone broker records none.
    """

    leader: int
    """-1 without a leader."""
    epoch: int
    """The leader epoch: one higher with each election."""
    replicas: list[int]
    isr: list[int]
    isr_epochs: list[int] = []
    """Of the members of `isr`, in their order."""
    elr: list[int] = []
    """Eligible leader replicas: they have left the ISR, and hold everything that is committed (KIP-966)."""
    elr_epochs: list[int] = []
    last_known_elr: list[int] = []
    adding: list[int] = []
    removing: list[int] = []


class ListenerValue(msgspec.Struct, frozen=True):
    name: str
    host: str
    port: int
    protocol: str


class BrokerValue(msgspec.Struct, frozen=True, omit_defaults=True):
    incarnation: str
    """A random id of this run of the process."""
    listeners: list[ListenerValue] = []
    rack: str | None = None
    clean_since: int = 0
    """The broker epoch since which its logs have been kept without an unclean restart; 0 for this registration's."""


class DrainingValue(msgspec.Struct, frozen=True):
    """A broker shuts down: it takes no leadership and enters no ISR.

    Not in the broker's own value: a change of that would be another registration, with another broker epoch.
    """

    incarnation: str


class ControllerValue(msgspec.Struct, frozen=True):
    node: int
    epoch: int
    """One higher with each controller."""


class ControllerEpochValue(msgspec.Struct, frozen=True):
    """Outlives the controller, so that the next one has a higher epoch."""

    epoch: int


class CreatingValue(msgspec.Struct, frozen=True):
    """Partitions of a topic are being written by a broker, which expects this key with each of its transactions.

    Partitions that belong neither to a topic nor to such a key are not needed any more.
    """

    name: str
    node: int
    broker_epoch: int
    """Of the registration under which the broker began: a broker that has registered again does not continue."""


class DeletingValue(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    brokers: list[int] = []
    """Those that may still have files of the topic; a standalone broker records none."""


class MetricNameValue(msgspec.Struct, frozen=True):
    """The topic that has this name in metrics, where `.` and `_` are the same."""

    name: str


class AclValue(msgspec.Struct, frozen=True):
    """An ACL; the numbers are those of Kafka's protocol."""

    resource: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


class ProducerIdsValue(msgspec.Struct, frozen=True, omit_defaults=True):
    next: int
    token: str = ""
    """Of the broker that took the last block: it recognizes its own block where the outcome was uncertain."""


class ScramValue(msgspec.Struct, frozen=True):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class TokenValue(msgspec.Struct, frozen=True):
    """A delegation token; principals are written as `User:alice`, times are in ms."""

    owner: str
    requester: str
    renewers: list[str]
    issued_ms: int
    expires_ms: int
    max_ms: int
    key_check: bytes
    """Tells whether the HMAC is made with the secret key in force."""
    scram: dict[str, ScramValue]
    """What verifies the HMAC as a password, by mechanism."""


class SaslSecretValue(msgspec.Struct, frozen=True):
    secret: bytes


encode = msgspec.json.encode
decode_cluster = msgspec.json.Decoder(ClusterValue).decode
decode_topic = msgspec.json.Decoder(TopicValue).decode
decode_partition = msgspec.json.Decoder(PartitionValue).decode
decode_broker = msgspec.json.Decoder(BrokerValue).decode
decode_draining = msgspec.json.Decoder(DrainingValue).decode
decode_controller = msgspec.json.Decoder(ControllerValue).decode
decode_controller_epoch = msgspec.json.Decoder(ControllerEpochValue).decode
decode_creating = msgspec.json.Decoder(CreatingValue).decode
decode_metric_name = msgspec.json.Decoder(MetricNameValue).decode
decode_deleting = msgspec.json.Decoder(DeletingValue).decode
decode_producer_ids = msgspec.json.Decoder(ProducerIdsValue).decode
decode_scram = msgspec.json.Decoder(ScramValue).decode
decode_sasl_secret = msgspec.json.Decoder(SaslSecretValue).decode
decode_features = msgspec.json.Decoder(dict[str, int]).decode
decode_quotas = msgspec.json.Decoder(dict[str, float]).decode
decode_token = msgspec.json.Decoder(TokenValue).decode
decode_acl = msgspec.json.Decoder(AclValue).decode
decode_config = msgspec.json.Decoder(dict[str, str]).decode


def topic(name: str) -> str:
    return TOPICS + name


def partition(topic_id: bytes, index: int) -> str:
    return f"{PARTITIONS}{encode_uuid(topic_id)}/{index}"


def broker(node_id: int) -> str:
    return f"{BROKERS}{node_id}"


def draining(node_id: int) -> str:
    return f"{DRAINING}{node_id}"


def topic_config(name: str) -> str:
    return TOPIC_CONFIGS + name


def broker_config(node: str) -> str:
    return BROKER_CONFIGS + node


def creating(topic_id: bytes) -> str:
    return CREATING + encode_uuid(topic_id)


def metric_name(topic_name: str) -> str:
    return METRIC_NAMES + topic_name.replace(".", "_")


def deleting(topic_id: bytes) -> str:
    return DELETING + encode_uuid(topic_id)


def scram(mechanism: str, user: str) -> str:
    """A user's name may contain slashes: it is all that follows the mechanism."""
    return f"{SCRAM}{mechanism}/{user}"


def quota(entity: QuotaEntity) -> str:
    return QUOTAS + entity_key(entity)


def quota_entity(key: str) -> QuotaEntity:
    return parse_entity_key(key[len(QUOTAS) :])


def token(token_id: str) -> str:
    return TOKENS + token_id


def acl(value: AclValue) -> str:
    return ACLS + encode_uuid(sha256(encode(value)).digest()[:16])
