"""Connections and requests: their number, their sizes, and what they may keep open."""

from __future__ import annotations

from dataclasses import dataclass

from flintmq.settings.declaration import UpdateMode, setting
from flintmq.settings.kinds import INT_MAX, SettingKind, ValueCheck, at_least, between_or


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class NetworkConfig:
    __slots__ = ()

    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes",
        SettingKind.INT,
        256 << 10,
        check=between_or(1024, INT_MAX, -1),
        doc="The kernel's send buffer of each connection; -1 lets the kernel choose and grow it. A small one keeps "
        "what is sent in the processor's cache and costs less; over links that are both fast and long, such as those "
        "between continents, a larger one or -1 carries more.",
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes",
        SettingKind.INT,
        -1,
        check=between_or(1024, INT_MAX, -1),
        doc="The kernel's receive buffer of each connection; -1 lets the kernel choose and grow it.",
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        SettingKind.INT,
        100 << 20,
        check=at_least(1),
        doc="The largest request; a larger one closes its connection.",
    )
    flint_request_max_bytes: int = setting(
        "flint.request.max.bytes",
        SettingKind.INT,
        16 << 20,
        check=at_least(1 << 20),
        doc="The largest request that writes no records, so any but Produce; a larger one closes its connection. "
        "Such a request is taken apart piece by piece: one of 100,000 partitions has a few megabytes.",
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        SettingKind.LONG,
        128 << 20,
        check=ValueCheck("at least 1, or -1 for no limit", lambda value: value >= 1 or value == -1),
        doc="Memory for all requests that are still arriving or wait their turn, counted by the bytes that "
        "have really come. Beyond it the largest stop being read for a while. Kafka sets no limit by "
        "default.",
    )
    flint_max_requests_in_flight_per_connection: int = setting(
        "flint.max.requests.in.flight.per.connection",
        SettingKind.INT,
        128,
        check=at_least(1),
        doc="Requests of one connection that may wait for their answer before no more are read from it.",
    )
    max_connections: int = setting(
        "max.connections",
        SettingKind.INT,
        INT_MAX,
        check=at_least(0),
        dynamic=UpdateMode.CLUSTER_WIDE,
        doc="Connections to this broker; beyond it new ones are closed.",
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        SettingKind.INT,
        INT_MAX,
        check=at_least(0),
        dynamic=UpdateMode.CLUSTER_WIDE,
        doc="Connections from one address; beyond it new ones are closed.",
    )
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate",
        SettingKind.INT,
        INT_MAX,
        check=at_least(1),
        dynamic=UpdateMode.CLUSTER_WIDE,
        per_listener=True,
        doc="Connections per second to this broker, or with listener.name.NAME. before its name to one listener. "
        "Beyond it new ones are closed after a short delay. For one address, set the quota connection_creation_rate.",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        SettingKind.LONG,
        600_000,
        doc="A connection without traffic for this long is closed; 0 or less never closes one.",
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        SettingKind.INT,
        2000,
        check=at_least(1),
        doc="Partitions in one answer to DescribeTopicPartitions.",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        SettingKind.INT,
        1000,
        check=at_least(0),
        doc="Fetch sessions kept (KIP-227); beyond it the longest unused goes.",
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        SettingKind.INT,
        55 << 20,
        check=at_least(1024),
        doc="The most one Fetch answers, whatever the client asks for.",
    )
    flint_segment_descriptors: int = setting(
        "flint.segment.descriptors",
        SettingKind.INT,
        4096,
        check=at_least(16),
        doc="Segment files kept open; beyond it the longest unused is closed until it is needed.",
    )
