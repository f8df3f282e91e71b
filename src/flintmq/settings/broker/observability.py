"""Logging, metrics over HTTP, profiling."""

from __future__ import annotations

from dataclasses import dataclass

from flintmq.settings.declaration import UpdateMode, setting
from flintmq.settings.kinds import (
    SettingKind,
    at_least,
    between,
    one_of,
    read_value,
)

_LEVELS = {"TRACE": "DEBUG", "WARN": "WARNING", "FATAL": "CRITICAL"}


def _read_level(text: str) -> str:
    level = text.strip().upper()
    return _LEVELS.get(level, level)


def _read_optional_port(text: str) -> object:
    return read_value(SettingKind.INT, text) if text.strip() else -1


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class ObservabilityConfig:
    __slots__ = ()

    flint_log_level: str = setting(
        "flint.log.level",
        SettingKind.STRING,
        "INFO",
        aliases=("log_level",),
        read=_read_level,
        check=one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
        dynamic=UpdateMode.PER_BROKER,
        doc="How much the broker logs: DEBUG, INFO, WARNING, ERROR or CRITICAL. Single modules are set apart by "
        "the resource BROKER_LOGGER.",
    )
    flint_log_format: str = setting(
        "flint.log.format",
        SettingKind.STRING,
        "text",
        check=one_of("text", "json"),
        doc="What standard error gets: `text` is for people, in colour on a terminal; `json` is one object a line.",
    )
    flint_log_file: str = setting(
        "flint.log.file",
        SettingKind.STRING,
        "",
        doc="A file that gets every log line as well, always one JSON object a line. Empty writes none.",
    )
    flint_log_file_max_bytes: int = setting(
        "flint.log.file.max.bytes",
        SettingKind.LONG,
        64 << 20,
        check=at_least(4096),
        doc="The log file is put aside with a number behind its name once it would grow beyond this.",
    )
    flint_log_file_count: int = setting(
        "flint.log.file.count",
        SettingKind.INT,
        5,
        check=between(2, 1000),
        doc="Log files kept in all, the one in use among them.",
    )
    flint_rest_host: str = setting(
        "flint.rest.host",
        SettingKind.STRING,
        "127.0.0.1",
        aliases=("rest_host",),
        doc="The address of the HTTP listener for metrics and health. The default is this machine only; empty "
        "means every interface. Any other address than loopback needs flint.rest.authentication.",
    )
    flint_rest_port: int = setting(
        "flint.rest.port",
        SettingKind.INT,
        30004,
        aliases=("rest_port",),
        read=_read_optional_port,
        check=between(-1, 65535),
        doc="The port of the HTTP listener; 0 takes a free one, -1 or nothing at all switches the listener off. "
        "If it is left at its default and the port is taken, the broker warns and does without.",
    )
    flint_metrics_partitions_max: int = setting(
        "flint.metrics.partitions.max",
        SettingKind.INT,
        1000,
        check=at_least(0),
        dynamic=UpdateMode.CLUSTER_WIDE,
        doc="Partitions that have metrics of their own; the sizes of the rest are told as one sum.",
    )
    flint_profile: bool = setting(
        "flint.profile",
        SettingKind.BOOLEAN,
        False,
        aliases=("profile",),
        doc="Take samples of where the broker spends its time, and write them as a flame graph (`profile.svg`) "
        "and as text (`profile.folded`) into the data folder at the stop and on SIGUSR2.",
    )
