"""The records of `__consumer_offsets` that classic groups write, byte for byte as Kafka has them.

A key begins with the number of its record type, a value with its version. Offsets are under types 0 and 1 (the first
is only read), a group's metadata under type 2. Whatever has another type belongs to someone else. Nothing here knows
what a record means for a group.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final, NamedTuple

from flintmq.coordinator.runtime.machine import CoordinatorRecord
from flintmq.errors import CorruptionError, ProtocolError
from flintmq.protocol.codec import decode, encoder
from flintmq.protocol.codegen.schema import Definitions
from flintmq.protocol.codegen.structures import Message, build

NO_TOPIC_ID: Final = bytes(16)

_OFFSET_TYPES: Final = (0, 1)
_OFFSET_TYPE: Final = b"\x00\x01"
_GROUP_TYPE_NUMBER: Final = 2
_GROUP_TYPE: Final = b"\x00\x02"
_KEY_VERSION: Final = 0
"""The number in front of a key stands for the whole type; all of these have but one form of key."""
_GROUP_VALUE_VERSION: Final = 3
"""The last one that every Kafka which may read it knows; Kafka itself writes no later one."""
_OFFSET_VALUE_VERSION: Final = 4
_EXPIRING_VALUE_VERSION: Final = 1
"""The only one that says when an offset expires."""

_KEYS_KEPT: Final = 4096
"""A group commits the same partitions again and again: the keys of the last ones are not made and read anew."""
_VALUE_HEAD: Final = struct.Struct(">hqiB")
"""Version, offset, leader epoch and, with one more, the size of the text, if that is below 127."""
_VALUE_TAIL: Final = struct.Struct(">qB")
"""The time of the commit, and how many tagged fields follow."""
_TOPIC_ID_TAG: Final = b"\x00\x10"
_METADATA_SHORT: Final = 126

_DEFINITIONS: Final = Definitions(
    """\
OffsetCommitKey coordinator-key 1 0 none
 group string 0+
 topic string 0+
 partition int32 0+

OffsetCommitValue coordinator-value 1 0-4 4+
 offset int64 0+
 leader_epoch int32 3+ default:-1 ignorable
 metadata string 0+
 commit_timestamp int64 0+
 expire_timestamp int64 1 default:-1 ignorable
 topic_id uuid 4+ tag:0:4+ ignorable

GroupMetadataKey coordinator-key 2 0 none
 group string 0+

GroupMetadataValue coordinator-value 2 0-4 4+
 protocol_type string 0+
 generation int32 0+
 protocol string 0+ null:0+
 leader string 0+ null:0+
 current_state_timestamp int64 2+ default:-1 ignorable
 members []MemberMetadata 0+
MemberMetadata
 member_id string 0+
 group_instance_id string 3+ null:3+ default:null ignorable
 client_id string 0+
 client_host string 0+
 rebalance_timeout int32 1+ default:-1 ignorable
 session_timeout int32 0+
 subscription bytes 0+
 assignment bytes 0+
"""
)


def _message(name: str) -> Any:
    return build(_DEFINITIONS.parse(name), __name__)


_OffsetKey: Final = _message("OffsetCommitKey")
_OffsetValue: Final = _message("OffsetCommitValue")
_GroupKey: Final = _message("GroupMetadataKey")
_GroupValue: Final = _message("GroupMetadataValue")


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group: str


class OffsetValue(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = -1
    expire_timestamp: int = -1
    """-1 where the broker's retention decides."""
    topic_id: bytes = NO_TOPIC_ID


class MemberValue(NamedTuple):
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    protocol_type: str
    """Empty if the group never had members."""
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp: int
    """Since when the group is in its state; -1 if an old record does not say."""
    members: tuple[MemberValue, ...]


def offset_record(key: OffsetKey, value: OffsetValue | None) -> CoordinatorRecord:
    written = _offset_key(*key)
    if value is None:
        return CoordinatorRecord(written, None)
    if value.expire_timestamp == -1 and len(text := value.metadata.encode()) <= _METADATA_SHORT:
        # What nearly every commit writes, by hand: a broker does little else for many groups.
        named = value.topic_id != NO_TOPIC_ID
        head = _VALUE_HEAD.pack(_OFFSET_VALUE_VERSION, value.offset, value.leader_epoch, len(text) + 1)
        tail = _VALUE_TAIL.pack(value.commit_timestamp, named)
        return CoordinatorRecord(
            written, head + text + tail + (_TOPIC_ID_TAG + value.topic_id if named else b"")
        )
    version = _OFFSET_VALUE_VERSION if value.expire_timestamp == -1 else _EXPIRING_VALUE_VERSION
    fields = _OffsetValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp,
        expire_timestamp=value.expire_timestamp,
        topic_id=value.topic_id,
    )
    return CoordinatorRecord(written, _encoded(fields, version))


@lru_cache(_KEYS_KEPT)
def _offset_key(group: str, topic: str, partition: int) -> bytes:
    out = bytearray(_OFFSET_TYPE)
    encoder(_OffsetKey, _KEY_VERSION)(_OffsetKey(group=group, topic=topic, partition=partition), out)
    return bytes(out)


def group_record(group: str, value: GroupValue | None) -> CoordinatorRecord:
    out = bytearray(_GROUP_TYPE)
    encoder(_GroupKey, _KEY_VERSION)(_GroupKey(group=group), out)
    if value is None:
        return CoordinatorRecord(bytes(out), None)
    fields = _GroupValue(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        current_state_timestamp=value.state_timestamp,
        members=[
            _GroupValue.MemberMetadata(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in value.members
        ],
    )
    return CoordinatorRecord(bytes(out), _encoded(fields, _GROUP_VALUE_VERSION))


@lru_cache(_KEYS_KEPT)
def read_key(key: bytes) -> OffsetKey | GroupKey | None:
    """None for a record of a type that is not known here. Raises CorruptionError."""
    kind = _number(key)
    if kind in _OFFSET_TYPES:
        offset = _decoded(_OffsetKey, key, _KEY_VERSION)
        return OffsetKey(offset.group, offset.topic, offset.partition)
    if kind == _GROUP_TYPE_NUMBER:
        return GroupKey(_decoded(_GroupKey, key, _KEY_VERSION).group)
    return None


def read_offset(value: bytes) -> OffsetValue:
    """Raises CorruptionError."""
    quickly = _read_plain_offset(value)
    if quickly is not None:
        return quickly
    read = _decoded(_OffsetValue, value, _number(value))
    return OffsetValue(
        read.offset,
        read.leader_epoch,
        read.metadata,
        read.commit_timestamp,
        read.expire_timestamp,
        bytes(read.topic_id),
    )


def _read_plain_offset(value: bytes) -> OffsetValue | None:
    """What `offset_record` writes by hand; None for everything else."""
    if len(value) < _VALUE_HEAD.size:
        return None
    version, offset, leader_epoch, size = _VALUE_HEAD.unpack_from(value)
    end = _VALUE_HEAD.size - 1 + size
    after = end + _VALUE_TAIL.size
    if version != _OFFSET_VALUE_VERSION or not 0 < size <= _METADATA_SHORT + 1 or len(value) < after:
        return None
    time, tags = _VALUE_TAIL.unpack_from(value, end)
    if not tags and len(value) == after:
        topic_id = NO_TOPIC_ID
    elif tags == 1 and len(value) == after + 18 and value[after : after + 2] == _TOPIC_ID_TAG:
        topic_id = value[after + 2 :]
    else:
        return None
    try:
        text = str(value[_VALUE_HEAD.size : end], "utf-8")
    except UnicodeDecodeError:
        return None
    return OffsetValue(offset, leader_epoch, text, time, -1, topic_id)


def read_group(value: bytes) -> GroupValue:
    """Raises CorruptionError."""
    read = _decoded(_GroupValue, value, _number(value))
    members = tuple(
        MemberValue(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
            member.session_timeout,
            bytes(member.subscription),
            bytes(member.assignment),
        )
        for member in read.members
    )
    if members and read.protocol is None:
        raise CorruptionError("group metadata with members but without a protocol")
    if len({member.id for member in members}) != len(members):
        raise CorruptionError("group metadata that names a member twice")
    instances = [member.instance_id for member in members if member.instance_id is not None]
    if len(set(instances)) != len(instances):
        raise CorruptionError("group metadata with two members of one instance id")
    return GroupValue(
        read.protocol_type,
        read.generation,
        read.protocol,
        read.leader,
        read.current_state_timestamp,
        members,
    )


def _encoded(message: Message, version: int) -> bytes:
    out = bytearray(version.to_bytes(2, "big"))
    encoder(type(message), version)(message, out)
    return bytes(out)


def _number(data: bytes) -> int:
    if len(data) < 2:
        raise CorruptionError(f"a group record's key or value of {len(data)} bytes")
    return int.from_bytes(data[:2], "big", signed=True)


def _decoded(cls: Any, data: bytes, version: int) -> Any:
    try:
        return decode(cls, data, version, 2)[0]
    except ProtocolError as error:
        raise CorruptionError(f"a group record that cannot be read: {error}") from error
