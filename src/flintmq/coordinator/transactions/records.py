"""Transactional ids as records of `__transaction_state`, in Kafka's formats.

A key is the type 0 and the transactional id; a value is its version and the rest. Version 1 can be extended by tagged
fields and carries those of KIP-890; version 0 is for a cluster whose `transaction.version` is 0.
What a record of a later version says cannot be known here; it is left alone.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from flintmq.coordinator.transactions.transaction import Transaction, TransactionState
from flintmq.errors import CorruptionError, ProtocolError
from flintmq.protocol.codec import decode, encode_into
from flintmq.protocol.codegen.schema import Definitions
from flintmq.protocol.codegen.structures import build

_KEY_TYPE: Final = 0
_KEY_VERSION: Final = 0
_VALUE_VERSION_MAX: Final = 1
_PREFIX: Final = struct.Struct(">h")

_DEFINITIONS: Final = Definitions(
    """TransactionLogKey coordinator-key - 0 none
 transactional_id string 0

TransactionLogValue coordinator-value - 0-1 1+
 producer_id int64 0+
 previous_producer_id int64 1+ tag:0:1+ default:-1
 next_producer_id int64 1+ tag:1:1+ default:-1
 producer_epoch int16 0+
 next_producer_epoch int16 1+ tag:3:1+ default:-1
 transaction_timeout_ms int32 0+
 transaction_status int8 0+
 transaction_partitions []PartitionsSchema 0+ null:0+
 transaction_last_update_timestamp_ms int64 0+
 transaction_start_timestamp_ms int64 0+
 client_transaction_version int16 1+ tag:2:1+
PartitionsSchema
 topic string 0+
 partition_ids []int32 0+
"""
)

_Key: Final[Any] = build(_DEFINITIONS.parse("TransactionLogKey"), __name__)
_Value: Final[Any] = build(_DEFINITIONS.parse("TransactionLogValue"), __name__)

# States that no record has: what claims one is not a record of this topic.
_NEVER_WRITTEN: Final = (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)


def encode_key(transactional_id: str) -> bytes:
    out = bytearray(_PREFIX.pack(_KEY_TYPE))
    encode_into(_Key(transactional_id=transactional_id), _KEY_VERSION, out)
    return bytes(out)


def decode_key(data: bytes) -> str | None:
    """The transactional id; None for a key of another type."""
    try:
        if _PREFIX.unpack_from(data)[0] != _KEY_TYPE:
            return None
        transactional_id: str = decode(_Key, data, _KEY_VERSION, _PREFIX.size)[0].transactional_id
    except (ProtocolError, struct.error) as error:
        raise CorruptionError(f"A key of the transaction log makes no sense: {error}") from error
    return transactional_id


def encode_value(transaction: Transaction, *, log_version: int) -> bytes:
    """The record of a transaction; version 0 cannot say that a producer id passes to another."""
    tagged: dict[str, int] = {}
    if log_version >= 1:
        tagged = {
            "previous_producer_id": transaction.previous_producer_id,
            "next_producer_id": transaction.next_producer_id,
            "client_transaction_version": transaction.client_version,
        }
    out = bytearray(_PREFIX.pack(log_version))
    encode_into(
        _Value(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_status=int(transaction.state),
            transaction_partitions=_topics_of(transaction),
            transaction_last_update_timestamp_ms=transaction.last_update_ms,
            transaction_start_timestamp_ms=transaction.start_ms,
            **tagged,
        ),
        log_version,
        out,
    )
    return bytes(out)


def _topics_of(transaction: Transaction) -> list[Any] | None:
    if transaction.state is TransactionState.EMPTY:
        return None
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    return [_Value.PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()]


def decode_value(transactional_id: str, data: bytes) -> Transaction | None:
    """The transaction as a coordinator knows it that has read its record; None for a version that is not known."""
    try:
        version: int = _PREFIX.unpack_from(data)[0]
        if not 0 <= version <= _VALUE_VERSION_MAX:
            return None
        value = decode(_Value, data, version, _PREFIX.size)[0]
        state = TransactionState(value.transaction_status)
    except (ProtocolError, struct.error, ValueError) as error:
        raise CorruptionError(f"The record of transactional id {transactional_id!r}: {error}") from error
    if state in _NEVER_WRITTEN:
        raise CorruptionError(
            f"The record of transactional id {transactional_id!r} is in state {state.title}."
        )
    return Transaction(
        transactional_id,
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            (topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
