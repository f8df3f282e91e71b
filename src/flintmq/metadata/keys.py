"""The keys and values of the metadata store. Pure.

/cluster                     {"id": …}
/topics/{name}               {"id": …, "partitions": n}       written last: the commit point of a creation
/p/{topic-id}/{n}            {"leader": …, "epoch": …, "replicas": […], "isr": […]}
/config/topic/{name}         {"retention.ms": "…"}
/config/broker/{id}          the same; the empty id is the default of all brokers
/deleting/{topic-id}         {"name": …}                      until the files are gone
/producer-ids                {"next": n}                      ids below it have been handed out
/scram/{mechanism}/{user}    {"salt": …, "stored_key": …, "server_key": …, "iterations": n}
/quota/{entity}              {"producer_byte_rate": n, …}     by entity, such as user=alice&client-id
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
DELETING = "/deleting/"
SCRAM = "/scram/"
QUOTAS = "/quota/"
SASL_SECRET = "/sasl-secret"
ACLS = "/acl/"
TOKENS = "/token/"


class ClusterValue(msgspec.Struct, frozen=True):
    id: str


class TopicValue(msgspec.Struct, frozen=True):
    id: str
    partitions: int


class PartitionValue(msgspec.Struct, frozen=True):
    leader: int
    epoch: int
    replicas: list[int]
    isr: list[int]


class DeletingValue(msgspec.Struct, frozen=True):
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


class ProducerIdsValue(msgspec.Struct, frozen=True):
    next: int


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
decode_deleting = msgspec.json.Decoder(DeletingValue).decode
decode_producer_ids = msgspec.json.Decoder(ProducerIdsValue).decode
decode_scram = msgspec.json.Decoder(ScramValue).decode
decode_sasl_secret = msgspec.json.Decoder(SaslSecretValue).decode
decode_quotas = msgspec.json.Decoder(dict[str, float]).decode
decode_token = msgspec.json.Decoder(TokenValue).decode
decode_acl = msgspec.json.Decoder(AclValue).decode
decode_config = msgspec.json.Decoder(dict[str, str]).decode


def topic(name: str) -> str:
    return TOPICS + name


def partition(topic_id: bytes, index: int) -> str:
    return f"{PARTITIONS}{encode_uuid(topic_id)}/{index}"


def topic_config(name: str) -> str:
    return TOPIC_CONFIGS + name


def broker_config(node: str) -> str:
    return BROKER_CONFIGS + node


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
