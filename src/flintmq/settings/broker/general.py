"""The broker itself: its number, its addresses, its directory, and what topics it creates."""

from __future__ import annotations

from dataclasses import dataclass

from flintmq.settings.declaration import UpdateMode, setting
from flintmq.settings.kinds import SettingKind, ValueCheck, at_least, between
from flintmq.settings.listeners import (
    DEFAULT_PORT,
    DEFAULT_PROTOCOL_MAP,
    LOOPBACK,
    Listener,
    listeners_on,
    parse_listeners,
    parse_protocols,
)


def _read_protocol_map(text: str) -> str:
    parse_protocols(text)
    return text.strip()


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class GeneralConfig:
    __slots__ = ()

    node_id: int = setting(
        "node.id",
        SettingKind.INT,
        0,
        check=at_least(0),
        aliases=("broker.id",),
        doc="The number of this broker.",
    )
    broker_rack: str | None = setting(
        "broker.rack", SettingKind.STRING, None, doc="The rack or zone of this broker, told to clients."
    )
    listeners: tuple[Listener, ...] = setting(
        "listeners",
        SettingKind.LIST,
        listeners_on(LOOPBACK, (DEFAULT_PORT,)),
        read=parse_listeners,
        dynamic=UpdateMode.PER_BROKER,
        check=ValueCheck("at least one address", lambda value: len(value) > 0),
        doc="The addresses to listen on, as `NAME://host:port`. An empty host means every interface, port 0 "
        "any free port, and one name may have several addresses. The default is this machine only, on IPv4 "
        "and IPv6. Listeners are opened and closed while the broker runs when this is changed.",
    )
    advertised_listeners: tuple[Listener, ...] = setting(
        "advertised.listeners",
        SettingKind.LIST,
        (),
        read=parse_listeners,
        dynamic=UpdateMode.PER_BROKER,
        doc="The addresses that clients connect to, one for each listener name. Where a name is "
        "missing, a client is told the address of its own connection, which needs no configuration except "
        "behind NAT or port mapping.",
    )
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map",
        SettingKind.STRING,
        DEFAULT_PROTOCOL_MAP,
        read=_read_protocol_map,
        dynamic=UpdateMode.PER_BROKER,
        doc="The security protocol of each listener name, as `NAME:PROTOCOL`: PLAINTEXT, SSL, SASL_PLAINTEXT or "
        "SASL_SSL. Listeners that are named like a protocol need no entry.",
    )
    log_dirs: tuple[str, ...] = setting(
        "log.dirs",
        SettingKind.LIST,
        ("./flintmq-data",),
        aliases=("log.dir",),
        check=ValueCheck("one folder", lambda value: len(value) == 1 and bool(value[0])),
        doc="The folder that holds the data; several are not available in this version. Kafka's default is "
        "under /tmp, which does not survive a restart of many machines.",
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        SettingKind.BOOLEAN,
        True,
        doc="Create a topic when a client asks for its metadata.",
    )
    flint_auto_create_topics_on_produce: bool = setting(
        "flint.auto.create.topics.on.produce",
        SettingKind.BOOLEAN,
        False,
        doc="Create a topic also when a client produces to it without having asked for its metadata.",
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", SettingKind.BOOLEAN, True, doc="Whether topics may be deleted at all."
    )
    num_partitions: int = setting(
        "num.partitions",
        SettingKind.INT,
        1,
        check=at_least(1),
        doc="Partitions of a topic that is created without saying how many.",
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        SettingKind.INT,
        1,
        check=between(1, 32767),
        doc="Replicas of a topic that is created without saying how many.",
    )
