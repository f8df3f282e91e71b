"""Records of `__consumer_offsets`, as the classes of Kafka 4.3.1 wrote them (Z2, Z7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.coordinator.groups import GroupMachine, GroupSettings, records
from flintmq.coordinator.groups.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    group_record,
    offset_record,
    read_group,
    read_key,
    read_offset,
)
from flintmq.coordinator.runtime.machine import StoredRecord
from flintmq.errors import CorruptionError

OFFSET_KEY = bytes.fromhex("000100076772c3bc70706500066f726465727300000007")
OLD_OFFSET_KEY = bytes.fromhex("000000076772c3bc70706500066f726465727300000007")
GROUP_KEY = bytes.fromhex("000200076772c3bc707065")
EMPTY_GROUP = bytes.fromhex("0003000000000000ffffffff0000018bcfe5680000000000")
OFFSET_WITHOUT_TOPIC_ID = bytes.fromhex("00040000000000000003ffffffff010000018bcfe5680000")
OFFSET_VALUES = {
    0: "00000000011f71fb04cb00046e6f74650000018bcfe56800",
    1: "00010000011f71fb04cb00046e6f74650000018bcfe568000000018bcfe57b88",
    2: "00020000011f71fb04cb00046e6f74650000018bcfe56800",
    3: "00030000011f71fb04cb0000000500046e6f74650000018bcfe56800",
    4: ("00040000011f71fb04cb00000005056e6f74650000018bcfe568000100100102030405060708090a0b0c0d0e0f10"),
}
GROUP_VALUES = {
    0: (
        "00000008636f6e73756d65720000002a000572616e676500036d2d310000000200036d2d31000163"
        "00092f31302e302e302e310000271000000003010203000000010900036d2d32000000042f3a3a31"
        "000017700000000000000000"
    ),
    1: (
        "00010008636f6e73756d65720000002a000572616e676500036d2d310000000200036d2d31000163"
        "00092f31302e302e302e310000ea600000271000000003010203000000010900036d2d3200000004"
        "2f3a3a3100001770000017700000000000000000"
    ),
    2: (
        "00020008636f6e73756d65720000002a000572616e676500036d2d310000018bcfe5680000000002"
        "00036d2d3100016300092f31302e302e302e310000ea600000271000000003010203000000010900"
        "036d2d32000000042f3a3a3100001770000017700000000000000000"
    ),
    3: (
        "00030008636f6e73756d65720000002a000572616e676500036d2d310000018bcfe5680000000002"
        "00036d2d310003692d3100016300092f31302e302e302e310000ea60000027100000000301020300"
        "0000010900036d2d32ffff000000042f3a3a3100001770000017700000000000000000"
    ),
    4: (
        "000409636f6e73756d65720000002a0672616e6765046d2d310000018bcfe5680003046d2d310469"
        "2d3102630a2f31302e302e302e310000ea600000271004010203020900046d2d320001052f3a3a31"
        "000017700000177001010000"
    ),
}
"""By version."""

KEY = OffsetKey("grüppe", "orders", 7)
TIME = 1_700_000_000_000
TOPIC_ID = bytes(range(1, 17))


def offset_value(version: int) -> OffsetValue:
    return OffsetValue(
        1234567890123,
        5 if version >= 3 else -1,
        "note",
        TIME,
        TIME + 5_000 if version == 1 else -1,
        TOPIC_ID if version == 4 else bytes(16),
    )


def group_value(version: int) -> GroupValue:
    rebalance_ms = 60_000 if version >= 1 else 10_000
    instance = "i-1" if version >= 3 else None
    return GroupValue(
        "consumer",
        42,
        "range",
        "m-1",
        TIME if version >= 2 else -1,
        (
            MemberValue("m-1", instance, "c", "/10.0.0.1", rebalance_ms, 10_000, b"\x01\x02\x03", b"\x09"),
            MemberValue("m-2", None, "", "/::1", 6_000, 6_000, b"", b""),
        ),
    )


def test_keys_are_written_as_kafka_does() -> None:
    assert offset_record(KEY, None) == (OFFSET_KEY, None)
    assert group_record("grüppe", None) == (GROUP_KEY, None)


@pytest.mark.parametrize("version", [1, 4])
def test_offsets_are_written_as_kafka_does(version: int) -> None:
    assert offset_record(KEY, offset_value(version)).value == bytes.fromhex(OFFSET_VALUES[version])
    assert offset_record(KEY, OffsetValue(3, -1, "", TIME)).value == OFFSET_WITHOUT_TOPIC_ID


@given(
    offset=st.integers(-1, 2**63 - 1),
    epoch=st.integers(-1, 2**31 - 1),
    text=st.text(max_size=140),
    time=st.integers(-1, 2**62),
    topic_id=st.sampled_from([bytes(16), bytes(range(16))]),
)
def test_what_is_written_by_hand_is_what_the_definition_says(
    offset: int, epoch: int, text: str, time: int, topic_id: bytes
) -> None:
    value = OffsetValue(offset, epoch, text, time, -1, topic_id)
    written = offset_record(KEY, value).value
    assert written is not None
    by_definition = records._decoded(records._OffsetValue, written, 4)
    assert records._encoded(by_definition, 4) == written
    assert read_offset(written) == value
    for end in range(len(written)):
        with pytest.raises(CorruptionError):
            read_offset(written[:end])


def test_groups_are_written_as_kafka_does() -> None:
    assert group_record("grüppe", group_value(3)).value == bytes.fromhex(GROUP_VALUES[3])
    assert group_record("grüppe", GroupValue("", 0, None, None, TIME, ())).value == EMPTY_GROUP


def test_keys_of_all_kinds_are_read() -> None:
    assert read_key(OFFSET_KEY) == read_key(OLD_OFFSET_KEY) == KEY
    assert read_key(GROUP_KEY) == GroupKey("grüppe")


@pytest.mark.parametrize("version", range(5))
def test_values_of_all_versions_are_read(version: int) -> None:
    assert read_offset(bytes.fromhex(OFFSET_VALUES[version])) == offset_value(version)
    assert read_group(bytes.fromhex(GROUP_VALUES[version])) == group_value(version)


@pytest.mark.parametrize("kind", [3, 8, 16, 99, 0x7FFF])
def test_records_of_other_kinds_of_groups_are_passed_over(kind: int) -> None:
    machine = GroupMachine(GroupSettings())
    machine.apply(StoredRecord(kind.to_bytes(2, "big") + b"\xff", b"\xff", 0, TIME))
    assert machine.expire_offsets(TIME) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\x00", b""),
        (OFFSET_KEY[:-1], None),
        (GROUP_KEY[:-1], None),
        (OFFSET_KEY, b""),
        (OFFSET_KEY, b"\x00\x05" + bytes(40)),
        (OFFSET_KEY, b"\xff\xff" + bytes(40)),
        (OFFSET_KEY, bytes.fromhex(OFFSET_VALUES[4])[:-1]),
        (GROUP_KEY, b"\x00\x04"),
        (GROUP_KEY, bytes.fromhex(GROUP_VALUES[3])[:-1]),
        (GROUP_KEY, bytes.fromhex(GROUP_VALUES[4]).replace(b"\x06range", b"\x00")),
        (GROUP_KEY, bytes.fromhex(GROUP_VALUES[4]).replace(b"m-2", b"m-1")),
        (GROUP_KEY, bytes.fromhex(GROUP_VALUES[4]).replace(b"m-2\x00", b"m-2\x04i-1")),
    ],
)
def test_records_that_make_no_sense_are_corrupt(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CorruptionError):
        GroupMachine(GroupSettings()).apply(StoredRecord(key, value, 0, TIME))
