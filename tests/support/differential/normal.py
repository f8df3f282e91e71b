"""Responses of two brokers in a form in which they can be compared: ids, times, addresses and order are left out."""

from __future__ import annotations

import re
from typing import Any

from flintmq.protocol.codegen.structures import Struct

_LEFT_OUT = {
    *("throttle_time_ms", "host", "port", "cluster_id", "controller_id", "session_id", "node_endpoints"),
    *("log_append_time_ms", "transaction_start_time_ms", "last_timestamp", "records", "log_dir"),
    *("total_bytes", "usable_bytes", "partition_size", "finalized_features", "supported_features"),
    *("api_keys", "finalized_features_epoch", "auth_bytes", "mechanisms", "preferred_read_replica"),
    *("replica_directory_id", "log_end_offset", "last_fetch_timestamp", "last_caught_up_timestamp"),
    *("high_watermark_of_quorum", "leader_epoch", "coordinator_epoch", "is_cordoned"),
}
"""What differs between any two brokers."""

_IDS = {"topic_id", "producer_id", "member_id", "leader", "client_id", "client_host"}
_CONTENTS = {"configs", "nodes"}
"""Lists of which only counts whether there is something in them."""

_OF_OTHER_RUNS = re.compile(r"^([tngx]-\d{4}|__.*)$")


def normal(value: Any, name: str = "") -> Any:
    if isinstance(value, Struct):
        return {
            field: normal(getattr(value, field), field) for field in value.__slots__ if field not in _LEFT_OUT
        }
    if isinstance(value, list):
        if name in _CONTENTS:
            return "some" if value else "none"
        return sorted((normal(one) for one in value if not _is_of_another_run(one)), key=repr)
    if name in _IDS:
        return "none" if not value or value in (-1, bytes(16)) else "an id"
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    return value


def _is_of_another_run(value: Any) -> bool:
    if not isinstance(value, Struct):
        return False
    names = ("name", "topic_name", "topic", "group_id", "transactional_id", "resource_name")
    return any(_OF_OTHER_RUNS.match(str(getattr(value, name, ""))) for name in names)


def differences(kafka: Any, flintmq: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """Path, Kafka's value and FlintMQ's of each difference."""
    if isinstance(kafka, dict) and isinstance(flintmq, dict):
        return [
            found
            for field in kafka
            for found in differences(kafka[field], flintmq[field], f"{path}.{field}".lstrip("."))
        ]
    if isinstance(kafka, list) and isinstance(flintmq, list) and len(kafka) == len(flintmq):
        return [
            found
            for one, other in zip(kafka, flintmq, strict=True)
            for found in differences(one, other, f"{path}[]")
        ]
    return [] if kafka == flintmq else [(path, kafka, flintmq)]
