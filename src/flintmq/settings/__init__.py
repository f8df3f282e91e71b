"""Settings of brokers and topics: one declared list each, and everything that derives from it.

    kinds, declaration   what a setting is: type, unit, check, default, meaning
    topic, broker        the two lists, as typed configuration classes
    resolve              layers and synonyms: from texts to configurations
    describe, alter      DescribeConfigs, AlterConfigs and IncrementalAlterConfigs
    load                 command line, environment and file at the start
    references           values that refer to the environment or to files

Pure: nothing here reads a file, the environment or a clock, except what a reference names.
"""

from __future__ import annotations

from flintmq.settings.alter import (
    Alteration,
    AlterOperation,
    alter_broker,
    alter_topic,
    apply_alterations,
    replacement,
)
from flintmq.settings.broker import BROKER_SETTINGS, BrokerConfig
from flintmq.settings.declaration import BrokerSynonym, Setting, UpdateMode
from flintmq.settings.describe import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_broker_default,
    describe_topic,
)
from flintmq.settings.document import SettingsFile
from flintmq.settings.kinds import SettingKind, Unit
from flintmq.settings.listeners import Listener
from flintmq.settings.load import LoadedSettings, LoadedValue, SettingOrigin, load
from flintmq.settings.resolve import BrokerValues, parse_broker_config, parse_topic_config
from flintmq.settings.topic import TOPIC_SETTINGS, TopicConfig

__all__ = [
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "AlterOperation",
    "Alteration",
    "BrokerConfig",
    "BrokerSynonym",
    "BrokerValues",
    "ConfigEntry",
    "ConfigSource",
    "ConfigSynonym",
    "Listener",
    "LoadedSettings",
    "LoadedValue",
    "Setting",
    "SettingKind",
    "SettingOrigin",
    "SettingsFile",
    "TopicConfig",
    "Unit",
    "UpdateMode",
    "alter_broker",
    "alter_topic",
    "apply_alterations",
    "describe_broker",
    "describe_broker_default",
    "describe_topic",
    "load",
    "parse_broker_config",
    "parse_topic_config",
    "replacement",
]
