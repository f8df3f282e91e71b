"""The records of `__transaction_state`, byte for byte as Kafka 4.3.1 writes them (Z1)."""

from __future__ import annotations

import pytest

from flintmq.coordinator.transactions.machine import TransactionSettings
from flintmq.coordinator.transactions.records import decode_key, decode_value, encode_key, encode_value
from flintmq.coordinator.transactions.transaction import Transaction, TransactionState
from flintmq.errors import CorruptionError
from unit.coordinator.transactions.driver import Driver

TIME_MS = 1_700_000_000_000
PARTITIONS = frozenset({("a", 0), ("b", 1)})

EMPTY = Transaction("orders", 7, epoch=0, previous_producer_id=7, timeout_ms=60_000, last_update_ms=TIME_MS)
ONGOING = EMPTY._replace(
    epoch=3,
    state=TransactionState.ONGOING,
    partitions=PARTITIONS,
    start_ms=TIME_MS + 1,
    last_update_ms=TIME_MS + 2,
    client_version=2,
)
PREPARED = ONGOING._replace(
    epoch=32767, next_producer_id=99, state=TransactionState.PREPARE_COMMIT, last_update_ms=TIME_MS + 3
)
COMPLETE = PREPARED.completed(TIME_MS + 4)

# Written by org.apache.kafka.coordinator.transaction.TransactionLog of Kafka 4.3.1.
VERSION_1 = {
    "empty": (
        EMPTY,
        "0001000000000000000700000000ea6000000000018bcfe56800ffffffffffffffff0100080000000000000007",
    ),
    "ongoing": (
        ONGOING,
        "0001000000000000000700030000ea600103026102000000000002620200000001000000018bcfe56802"
        "0000018bcfe56801020008000000000000000702020002",
    ),
    "prepared": (
        PREPARED,
        "000100000000000000077fff0000ea600203026102000000000002620200000001000000018bcfe56803"
        "0000018bcfe5680103000800000000000000070108000000000000006302020002",
    ),
    "complete": (
        COMPLETE,
        "0001000000000000006300000000ea6004010000018bcfe568040000018bcfe56801020008000000000000000702020002",
    ),
}
VERSION_0 = {
    "empty": (EMPTY, "0000000000000000000700000000ea6000ffffffff0000018bcfe56800ffffffffffffffff"),
    "ongoing": (
        ONGOING,
        "0000000000000000000700030000ea600100000002000161000000010000000000016200000001000000010000018bcfe56802"
        "0000018bcfe56801",
    ),
}


@pytest.mark.parametrize(
    ("transactional_id", "data"), [("orders", "000000066f7264657273"), ("ünï", "00000005c3bc6ec3af")]
)
def test_keys_are_kafkas(transactional_id: str, data: str) -> None:
    assert encode_key(transactional_id) == bytes.fromhex(data)
    assert decode_key(bytes.fromhex(data)) == transactional_id


@pytest.mark.parametrize("name", VERSION_1)
def test_values_are_kafkas(name: str) -> None:
    transaction, data = VERSION_1[name]
    assert encode_value(transaction, log_version=1) == bytes.fromhex(data)
    assert decode_value("orders", bytes.fromhex(data)) == transaction


@pytest.mark.parametrize("name", VERSION_0)
def test_values_of_the_first_version_are_kafkas(name: str) -> None:
    transaction, data = VERSION_0[name]
    assert encode_value(transaction, log_version=0) == bytes.fromhex(data)
    untagged = transaction._replace(previous_producer_id=-1, client_version=0)
    assert decode_value("orders", bytes.fromhex(data)) == untagged


@pytest.mark.parametrize(("transaction_version", "log_version"), [(0, 0), (1, 1), (2, 1)])
def test_the_level_of_the_cluster_chooses_the_version(transaction_version: int, log_version: int) -> None:
    driver = Driver(TransactionSettings(transaction_version=transaction_version))
    driver.producer()
    assert driver.records[-1].value is not None
    assert driver.records[-1].value[:2] == bytes([0, log_version])


def test_unknown_tags_of_a_later_kafka_are_skipped() -> None:
    data = bytes.fromhex(VERSION_1["empty"][1])
    extended = data[:-11] + bytes([2]) + data[-10:] + b"\x09\x01\xff"
    assert decode_value("orders", extended) == EMPTY


def test_what_a_later_version_says_is_not_known() -> None:
    assert decode_value("orders", b"\0\2anything") is None
    assert decode_key(b"\0\1anything") is None


@pytest.mark.parametrize("size", [0, 1, 2, 10, 40])
def test_a_value_that_is_cut_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptionError):
        decode_value("orders", bytes.fromhex(VERSION_1["ongoing"][1])[:size])


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0", b"\0\0\0\5abc"])
def test_a_key_that_is_cut_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_key(data)


@pytest.mark.parametrize("status", [TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE, 8, -1])
def test_a_state_that_is_never_written_is_corrupt(status: int) -> None:
    data = bytearray.fromhex(VERSION_1["complete"][1])
    data[16:17] = status.to_bytes(1, "big", signed=True)
    with pytest.raises(CorruptionError):
        decode_value("orders", bytes(data))
